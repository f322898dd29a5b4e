package main

import (
	"os"
	"strings"
	"testing"
)

// TestCommandsOnThePageOfDelivery: docs/delivery.md has the commands that `worker check` prints for exclusive delivery.
func TestCommandsOnThePageOfDelivery(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/delivery.md")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	r := call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_DELIVERY=exclusive"}, "check")
	r.want(t, exitFailed, "https://github.com/nats-io/natscli")
	compared := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "nats stream add INGEST ") || strings.HasPrefix(line, "for p in ") {
			compared++
			if !strings.Contains(r.out, "create it ("+line+")") {
				t.Errorf("the check does not print this command: %s", line)
			}
		}
	}
	if compared != 2 {
		t.Errorf("the page has %d of the commands, want 2", compared)
	}
}
