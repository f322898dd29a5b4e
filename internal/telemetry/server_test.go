package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/telemetry"
)

var quiet = slog.New(slog.DiscardHandler)

// serve starts a server on a free port and returns its URL.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	s, err := telemetry.Listen("127.0.0.1:0", "MILLRACE_HTTP_ADDR", handler, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr().String()
}

func get(t *testing.T, url string) (status int, header http.Header, body string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(text)
}

// has checks a response's status. It also checks that the body, or the text of a JSON error, contains part.
func has(t *testing.T, url string, status int, part string) {
	t.Helper()
	got, header, body := get(t, url)
	if got >= 400 && header.Get("Content-Type") == "application/json" {
		body = errorOf(t, got, body)
	}
	if got != status || !strings.Contains(body, part) {
		t.Errorf("%s: %d %.300q, want %d with %q", url, got, body, status, part)
	}
}

func TestPublicServer(t *testing.T) {
	m, _ := observed(t)
	var p patient
	h := p.health()
	url := serve(t, telemetry.Handler(m, h))
	has(t, url+"/metrics", 200, `millrace_stage_seconds_count{device="host",stage="copy_in"} 1`)
	has(t, url+"/metrics", 200, `millrace_overlap_seconds_total{device="host"} 1.5`)
	has(t, url+"/healthz", 200, "ok")
	has(t, url+"/readyz", 503, "starting")
	h.Started()
	has(t, url+"/readyz", 200, "ok")
	p.work = []telemetry.Work{{Name: "GPU-1", Lost: device.ErrLost}}
	has(t, url+"/healthz", 503, "GPU-1: device lost")
	has(t, url+"/debug/pprof/", 404, "")
	has(t, url+"/trace", 404, "")
}

func TestPublicServerListsItsPages(t *testing.T) {
	m, _ := observed(t)
	var p patient
	url := serve(t, telemetry.Handler(m, p.health()))
	status, header, list := get(t, url+"/")
	if status != 200 || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Errorf("/: %d, %s", status, header.Get("Content-Type"))
	}
	var pages []string
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "/") {
			pages = append(pages, strings.Fields(line)[0])
		}
	}
	if want := []string{"/metrics", "/healthz", "/readyz"}; !slices.Equal(pages, want) {
		t.Errorf("/ lists %q, want %q", pages, want)
	}
}

func TestDebugServer(t *testing.T) {
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(pipelined("host", 20, 4)...), Build: build}))
	has(t, url+"/", 200, `v0.0.0 <span class="commit">abc</span>`)
	has(t, url+"/debug/pprof/", 200, "goroutine")
	has(t, url+"/debug/pprof/goroutine?debug=1", 200, "goroutine profile")
	has(t, url+"/debug/pprof/cmdline", 200, "telemetry")
	has(t, url+"/elsewhere", 404, "")
	for _, seconds := range []string{"0", "-1", "3601", "ten", "1.5"} {
		has(t, url+"/trace?seconds="+seconds, 400, "want a whole number from 1 to 3600")
	}
	for _, query := range []string{"", "?seconds=1"} {
		status, header, body := get(t, url+"/trace"+query)
		if status != 200 || header.Get("Content-Type") != "application/json" || !json.Valid([]byte(body)) {
			t.Errorf("/trace%s: %d, %s, %.200q", query, status, header.Get("Content-Type"), body)
		}
	}
}

func TestIndexLinksWork(t *testing.T) {
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))
	_, _, page := get(t, url+"/")
	links := 0
	for _, part := range strings.Split(page, `href="/`)[1:] {
		path, _, _ := strings.Cut(part, `"`)
		if strings.HasPrefix(path, "debug/pprof/profile") {
			continue // this page profiles for the requested duration
		}
		links++
		has(t, url+"/"+path, 200, "")
	}
	if links < 3 {
		t.Errorf("%d links on the index", links)
	}
}

func TestAPortInUseIsNamed(t *testing.T) {
	taken := strings.TrimPrefix(serve(t, http.NotFoundHandler()), "http://")
	_, err := telemetry.Listen(taken, "MILLRACE_HTTP_ADDR", http.NotFoundHandler(), quiet)
	want := taken + " is in use by another program: stop that, or set MILLRACE_HTTP_ADDR to another address"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAnAddressOfAnotherMachineIsRefused(t *testing.T) {
	_, err := telemetry.Listen("192.0.2.1:1", "MILLRACE_DEBUG_ADDR", http.NotFoundHandler(), quiet) // TEST-NET-1, RFC 5737
	if err == nil || !strings.Contains(err.Error(), "set MILLRACE_DEBUG_ADDR to an address of this machine") {
		t.Errorf("got %v", err)
	}
}

// TestCloseLetsRequestsFinish delays a request while the server closes. New connections are refused, and the running
// request gets its response.
func TestCloseLetsRequestsFinish(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	s, err := telemetry.Listen("127.0.0.1:0", "MILLRACE_HTTP_ADDR", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		_, _ = io.WriteString(w, "finished")
	}), quiet)
	if err != nil {
		t.Fatal(err)
	}
	answer, closed := make(chan string), make(chan error)
	go func() {
		response, err := http.Get("http://" + s.Addr().String())
		if err != nil {
			answer <- err.Error()
			return
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answer <- string(text)
	}()
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() { closed <- s.Close(ctx) }()
	for { // until the server no longer listens, while the request runs
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			break
		}
		_ = c.Close()
		<-time.After(time.Millisecond)
	}
	close(finish)
	if got := <-answer; got != "finished" {
		t.Errorf("the running request got %q", got)
	}
	if err := errors.Join(<-closed, s.Close(ctx)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestCloseCutsOffAtItsDeadline: a request that never ends doesn't block the worker.
func TestCloseCutsOffAtItsDeadline(t *testing.T) {
	entered := make(chan struct{})
	s, err := telemetry.Listen("127.0.0.1:0", "MILLRACE_HTTP_ADDR", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}), quiet)
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan error)
	go func() {
		_, err := http.Get("http://" + s.Addr().String())
		cut <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v, want context.Canceled", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}

// TestDebugPagesAreForThisMachine: requests from pages of other sites are refused, and so are requests to foreign host
// names that resolve to this machine.
func TestDebugPagesAreForThisMachine(t *testing.T) {
	url := serve(t, telemetry.DebugHandler(telemetry.Debug{Timeline: timelineOf(), Build: build}))
	for _, c := range []struct {
		path, host, site, dest string
		want                   int
	}{
		{"debug/pprof/cmdline", "localhost:6060", "", "", 200},
		{"debug/pprof/cmdline", "127.0.0.1", "same-origin", "empty", 200},
		{"debug/pprof/cmdline", "[::1]:6060", "none", "document", 200},
		{"", "localhost", "cross-site", "document", 200},                    // the user followed a link
		{"debug/pprof/cmdline", "localhost", "cross-site", "document", 403}, // a page that navigates without the user
		{"", "localhost", "cross-site", "iframe", 403},
		{"debug/pprof/cmdline", "localhost", "cross-site", "image", 403},
		{"", "localhost", "same-site", "document", 200},                    // a page on another port of this machine may link here
		{"debug/pprof/cmdline", "localhost", "same-site", "document", 403}, // another program's page may not request anything else
		{"debug/pprof/profile", "localhost", "same-site", "empty", 403},
		{"trace", "localhost", "same-site", "empty", 403},
		{"timeline", "localhost", "same-site", "empty", 403},
		{"", "localhost", "same-site", "iframe", 403},
		{"", "localhost", "something-new", "empty", 403},
		{"debug/pprof/cmdline", "rebound.example.com:6060", "same-origin", "empty", 403},
		{"debug/pprof/cmdline", "localhost.example.com", "", "", 403},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/"+c.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = c.host
		request.Header.Set("Sec-Fetch-Site", c.site)
		request.Header.Set("Sec-Fetch-Dest", c.dest)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != c.want {
			t.Errorf("%+v: %s", c, answer.Status)
		}
		if err := answer.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
