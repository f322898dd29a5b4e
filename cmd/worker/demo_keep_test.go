package main

import (
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestKeptDemoGoesOn checks that with --keep, the page, the server and the worker keep running after the demo. A signal must end them with
// exit status 0.
func TestKeptDemoGoesOn(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"MILLRACE_DEBUG_ADDR=127.0.0.1:0", "MILLRACE_LOG_LEVEL=info", "MILLRACE_LOG_FORMAT=json", "MILLRACE_OPERATORS=crc32c",
		"TMPDIR=" + t.TempDir()}, "demo", "--payloads", "50", "--keep")
	p.await("kept: the timeline page at http://127.0.0.1:")
	p.await("see its result:")
	for _, part := range []string{"verified 50 of 50 results", "send a payload:  echo 'some text' | MILLRACE_NATS_URL=", " " + binary + " send\n", binary + " results --follow"} {
		if !strings.Contains(p.text(), part) {
			t.Errorf("the output lacks %q", part)
		}
	}
	if page := body(t, address(t, p, "serving debug pages")); !strings.Contains(page, "Millrace timeline") {
		t.Errorf("the page is %.200s", page)
	}
	url := regexp.MustCompile(`server at (nats://\S+) run until`).FindStringSubmatch(p.text())
	if url == nil {
		t.Fatal("the server's address is not printed")
	}
	js := clientOf(t, url[1])
	if _, err := js.Publish(t.Context(), "ingest.hello", []byte("one more")); err != nil {
		t.Fatal(err)
	}
	awaitResults(t, js, 51)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	if _, err := http.Get(address(t, p, "serving debug pages")); err == nil {
		t.Error("the page is still there")
	}
}

// TestInterruptedDemoSaysSo checks that the demo reports Ctrl-C as an interruption, and not as missing results.
func TestInterruptedDemoSaysSo(t *testing.T) {
	t.Parallel()
	p := start(t, []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_OPERATORS=crc32c", "TMPDIR=" + t.TempDir()}, "demo", "--payloads", "100000000")
	p.await("device host")
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if !p.ended() {
		t.Fatal("the demo did not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	for _, part := range []string{"demo: interrupted: finishing the batches in flight", "interrupted: the tables show what ran until then", "worker: demo: interrupted"} {
		if !strings.Contains(p.text(), part) {
			t.Errorf("the output lacks %q", part)
		}
	}
	if !regexp.MustCompile(`payloads verified +[0-9,]+ of 100,000,000`).MatchString(p.text()) {
		t.Error("the table does not say how many payloads were verified")
	}
	for _, untrue := range []string{"not every payload came back", "until all results were stored", "payloads a second"} {
		if strings.Contains(p.text(), untrue) {
			t.Errorf("the output contains %q", untrue)
		}
	}
}
