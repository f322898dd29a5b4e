package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPermissionViolationsAreBounded runs a worker without the permission to acknowledge. The server refuses each acknowledgement, and
// the client library reports each refusal.
func TestPermissionViolationsAreBounded(t *testing.T) {
	t.Parallel()
	s, as := serverOf(t, strings.Replace(documented(t), `"$JS.ACK.INGEST.millrace.>"`, `"not.this"`, 1))
	_, admin := as("admin")
	provision(t, admin, false)
	began := time.Now()
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
	lines, most := strings.Count(p.text(), message), 11*(int(time.Since(began)/(10*time.Second))+2)
	if lines > most || lines < 11 {
		t.Errorf("%d lines about permissions, want 11 to %d for %d refusals", lines, most, n)
	}
	for _, line := range strings.Split(p.text(), "\n") {
		if strings.Contains(line, message) && (!strings.Contains(line, "$JS.ACK.INGEST") || !strings.Contains(line, "docs/security.md")) {
			t.Errorf("a line does not name the subject or docs/security.md: %s", line)
		}
	}
}
