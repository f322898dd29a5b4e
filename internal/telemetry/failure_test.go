package telemetry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/internal/telemetry"
)

// errorOf returns the error text of a JSON response.
func errorOf(t *testing.T, status int, body string) string {
	t.Helper()
	var f struct {
		Error  string
		Status int
	}
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil || f.Status != status || f.Error == "" {
		t.Errorf("the answer %d is %q (%v)", status, body, err)
	}
	return f.Error
}

func TestErrorsAreJSON(t *testing.T) {
	m, _ := observed(t)
	var p patient
	public := serve(t, telemetry.Handler(m, p.health()))
	debug := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))
	for _, c := range []struct {
		method, url string
		status      int
		want        string // part of the error text
		allow       string
	}{
		{"POST", public + "/", 405, "Method Not Allowed", "GET, HEAD"},
		{"GET", public + "/elsewhere", 404, "not found", ""},
		{"POST", public + "/metrics", 405, "Method Not Allowed", "GET, HEAD"},
		{"DELETE", public + "/healthz", 405, "Method Not Allowed", "GET, HEAD"},
		{"GET", debug + "/elsewhere", 404, "not found", ""},
		{"PUT", debug + "/timeline", 405, "Method Not Allowed", "GET, HEAD"},
		{"GET", debug + "/timeline?limit=0", 400, `limit is "0": want a whole number from 1 to 1000`, ""},
		{"GET", debug + "/timeline?after=%ff<b>", 400, "after is", ""},
		{"GET", debug + "/trace?seconds=ten", 400, `seconds is "ten"`, ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, c.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // the whole body was read
		h := response.Header
		if response.StatusCode != c.status || h.Get("Content-Type") != "application/json" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Allow") != c.allow {
			t.Errorf("%s %s: %s with %v", c.method, c.url, response.Status, h)
		}
		if text := errorOf(t, c.status, string(body)); !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %q, want %q", c.method, c.url, text, c.want)
		}
	}
}

// TestTextStaysText checks that errors for probes and Go's tools are plain text.
func TestTextStaysText(t *testing.T) {
	m, _ := observed(t)
	var p patient
	public := serve(t, telemetry.Handler(m, p.health()))
	debug := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))
	for url, want := range map[string]string{
		public + "/readyz": "starting\n", debug + "/debug/pprof/nothing": "Unknown profile\n",
	} {
		status, header, body := get(t, url)
		if status < 400 || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") || !strings.Contains(body, want) {
			t.Errorf("%s: %d, %v, %q", url, status, header, body)
		}
	}
}

type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestPanicsAreAnsweredAndLogged(t *testing.T) {
	var log logged
	mux := http.NewServeMux()
	mux.HandleFunc("/at-once", func(http.ResponseWriter, *http.Request) { panic("something broke") })
	mux.HandleFunc("/after-an-error", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "half of an answer", http.StatusBadRequest)
		panic("something broke")
	})
	mux.HandleFunc("/midway", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half of an answer")
		_ = http.NewResponseController(w).Flush() // an error of Flush doesn't matter
		panic("something broke")
	})
	mux.HandleFunc("/aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s, err := telemetry.Listen("127.0.0.1:0", "MILLRACE_HTTP_ADDR", mux, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }() // no request is running
	url := "http://" + s.Addr().String()
	for _, path := range []string{"/at-once", "/after-an-error"} {
		has(t, url+path, 500, "its log says why")
	}
	for _, path := range []string{"/midway", "/aborted"} {
		response, err := http.Get(url + path)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close() // the connection was aborted
		}
		if err == nil {
			t.Errorf("%s was answered as if it were whole", path)
		}
	}
	for _, want := range []string{"level=ERROR", "a request failed", "path=/at-once", "path=/after-an-error", "path=/midway", "something broke", "failure_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "/aborted") {
		t.Error("a handler that aborted on purpose is in the log")
	}
}
