package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPermissionViolationsAreBounded runs a worker without permission to acknowledge. The client library reports each
// refused acknowledgement.
func TestPermissionViolationsAreBounded(t *testing.T) {
	t.Parallel()
	s, as := serverOf(t, strings.Replace(documented(t), `"$JS.ACK.INGEST.millrace.>"`, `"not.this"`, 1))
	_, admin := as("admin")
	provision(t, admin, false)
	p := start(t, []string{"MILLRACE_NATS_URL=nats://worker:worker-password@" + s.Addr().String(), "MILLRACE_OPERATORS=crc32c",
		"MILLRACE_LOG_FORMAT=json", "MILLRACE_HTTP_ADDR=127.0.0.1:0"})
	p.await(`"msg":"working"`)
	const n = 2000
	_, publisher := as("publisher")
	for i := range n {
		if _, err := publisher.PublishAsync(fmt.Sprint("ingest.", i%7), nil); err != nil {
			t.Fatal(err)
		}
	}
	awaitBody(t, address(t, p, "serving metrics and health")+"metrics", fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, n))
	p.await(`"suppressed":`)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	const message = `"msg":"NATS permissions violation"`
	var times []time.Time // times of the log lines
	for line := range strings.SplitSeq(p.text(), "\n") {
		if !strings.Contains(line, message) {
			continue
		}
		if !strings.Contains(line, "$JS.ACK.INGEST") || !strings.Contains(line, "docs/security.md") {
			t.Errorf("a line does not name the subject or docs/security.md: %s", line)
		}
		var l struct{ Time time.Time }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		times = append(times, l.Time)
	}
	if len(times) < 11 {
		t.Fatalf("%d lines about permissions, want 11 or more for %d refusals", len(times), n)
	}
	took := times[len(times)-1].Sub(times[0])
	if maximum := 11 * (int(took/(10*time.Second)) + 2); len(times) > maximum {
		t.Errorf("%d lines about permissions within %v, want at most %d for %d refusals", len(times), took, maximum, n)
	}
}
