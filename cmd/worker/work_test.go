package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/ingest/natstest"
)

func TestDemoVerifiesEveryPayload(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.json")
	r := call(t, []string{"MILLRACE_DEBUG_ADDR=127.0.0.1:0"}, "demo", "--payloads", "100", "--seed", "7", "--timeline", trace)
	r.want(t, exitDone, "watch it at http://127.0.0.1:", "overlap, of busy", "copy_in", "payloads a second")
	if last := lastLine(r.out); last != "verified 100 of 100 results" {
		t.Errorf("the last line is %q", last)
	}
	data, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		TraceEvents []struct {
			Category string `json:"cat"`
			Phase    string `json:"ph"`
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(data, &parsed); err != nil || len(parsed.TraceEvents) < 10 {
		t.Errorf("the timeline has %d events, error %v", len(parsed.TraceEvents), err)
	}
	bars := map[string]int{}
	for _, e := range parsed.TraceEvents {
		if e.Phase == "X" {
			bars[e.Category]++
		}
	}
	for _, stage := range []string{"copy_in", "compute", "copy_out"} { // the demo also copies on the CPU
		if bars[stage] == 0 {
			t.Errorf("the timeline has no batch in stage %s, only %v", stage, bars)
		}
	}
}

func TestDemoWithOtherOperatorsAndBinaryResults(t *testing.T) {
	r := call(t, []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_OPERATORS=minhash?k=3&hashes=5,crc32c", "MILLRACE_RESULT_FORMAT=binary",
		"MILLRACE_BATCH_BYTES=1MiB", "MILLRACE_LANES=2"}, "demo", "--payloads", "200")
	r.want(t, exitDone)
	if last := lastLine(r.out); last != "verified 200 of 200 results" {
		t.Errorf("the last line is %q", last)
	}
}

// TestDemoWithFrames checks that the demo counts records and reads results in several parts.
func TestDemoWithFrames(t *testing.T) {
	for _, c := range []struct {
		format, encoding string
		flags            []string
		last             string
	}{
		{"json", "none", []string{"--framing", "newline_delimited", "--compress", "zstd", "--record-bytes", "100", "--frame-records", "300"},
			"verified 2 of 2 results, 600 of 600 records"},
		{"arrow", "zstd", []string{"--framing", "arrow", "--record-bytes", "20"}, "verified 2 of 2 results, 52428 of 52428 records"},
		{"json", "none", []string{"--framing", "length_delimited", "--record-bytes", "2", "--frame-records", "60000", "--compress", "lz4"},
			"verified 2 of 2 results, 120000 of 120000 records"}, // each result exceeds a message
		{"binary", "lz4", []string{"--compress", "snappy"}, "verified 2 of 2 results"},
	} {
		r := call(t, []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_OPERATORS=crc32c,minhash?hashes=4", "MILLRACE_RESULT_FORMAT=" + c.format,
			"MILLRACE_RESULT_ENCODING=" + c.encoding}, append([]string{"demo", "--payloads", "2"}, c.flags...)...)
		r.want(t, exitDone)
		if last := lastLine(r.out); last != c.last {
			t.Errorf("%v: the last line is %q, want %q", c.flags, last, c.last)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestRunWorksUntilSIGTERM(t *testing.T) {
	s := serve(t)
	js := client(t, s)
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=127.0.0.1:0",
		"MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json"}, "run", "--progress")
	p.await(`"msg":"working"`)
	const n = 200
	for i := range n {
		if _, err := js.Publish(context.Background(), "ingest.test", fmt.Append(nil, "payload ", i)); err != nil {
			t.Fatal(err)
		}
	}
	p.await("200 payloads  ") // progress line
	public := address(t, p, "serving metrics and health")
	if body := body(t, public+"metrics"); !strings.Contains(body, `millrace_messages_total{outcome="published"} 200`) {
		t.Errorf("the metrics do not count %d published:\n%s", n, grep(body, "millrace_messages_total"))
	}
	for _, path := range []string{"healthz", "readyz"} {
		if body := body(t, public+path); body != "ok\n" {
			t.Errorf("/%s returns %q", path, body)
		}
	}
	if body := body(t, address(t, p, "serving debug pages")+"trace?seconds=60"); !strings.Contains(body, `"cat":"compute"`) {
		t.Errorf("/trace has no batch in stage compute: %.300s", body)
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	if got := streamMessages(t, js, "RESULTS"); got != n {
		t.Errorf("%d results, want %d", got, n)
	}
}

func TestRunStartsTheEmbeddedServer(t *testing.T) {
	addr := freeAddr()
	p := start(t, []string{asWorker + "=" + addr, "MILLRACE_LOG_FORMAT=json", "MILLRACE_OPERATORS=crc32c"})
	p.await(`"msg":"working"`)
	for _, want := range []string{"embedded NATS server", "nats://" + addr, "created stream", "INGEST", "RESULTS"} {
		if !strings.Contains(p.text(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

// address returns the address in the log line with the given message.
func address(t *testing.T, p *process, message string) string {
	t.Helper()
	m := regexp.MustCompile(`"msg":"` + message + `","address":"([^"]+)"`).FindStringSubmatch(p.text())
	if m == nil {
		t.Fatalf("no log line %q with an address", message)
	}
	return m[1]
}

func grep(text, what string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// body returns the body of a page, regardless of the status.
func body(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // the body has been read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitBody polls a page until it contains text.
func awaitBody(t *testing.T, url, text string) {
	t.Helper()
	natstest.Until(t, fmt.Sprintf("%s contains %q", url, text), func() bool { return strings.Contains(body(t, url), text) })
}
