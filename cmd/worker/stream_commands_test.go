package main

import (
	"os"
	"strings"
	"testing"
)

// TestCommandsForExclusiveDelivery checks that docs/streams.md has the commands that `worker check` prints for exclusive delivery.
func TestCommandsForExclusiveDelivery(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/streams.md")
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

// TestCommandsThatMoveDeadLetters checks that docs/streams.md has the commands that `worker check` prints for a result stream with
// dead-letter subjects.
func TestCommandsThatMoveDeadLetters(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	js, env := client(t, s), []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_HTTP_ADDR=127.0.0.1:0"}
	p := start(t, append(env, "MILLRACE_PROVISION=true", "MILLRACE_LOG_FORMAT=json"))
	p.await(`"msg":"working"`)
	p.terminate()
	results, err := js.Stream(t.Context(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	c := results.CachedInfo().Config
	c.Subjects = append(c.Subjects, "deadletter", "deadletter.>")
	if err := js.DeleteStream(t.Context(), "RESULTS_DEADLETTER"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r := call(t, env, "check")
	compared := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		edits := strings.HasPrefix(line, "nats stream edit RESULTS --subjects") && !strings.Contains(line, "commits.")
		if edits || strings.HasPrefix(line, "nats stream add RESULTS_DEADLETTER ") {
			compared++
			if !strings.Contains(r.out, line) {
				t.Errorf("the check does not print this command: %s\n%s", line, r.out)
			}
		}
	}
	if compared != 2 {
		t.Errorf("the page has %d of the commands, want 2", compared)
	}
}

// TestCommandsForCommitMarkers checks that docs/streams.md has the commands that `worker check` prints for streams without commit markers.
func TestCommandsForCommitMarkers(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_DELIVERY=exclusive"}
	p := start(t, append(env, "MILLRACE_EXACTLY_ONCE=off", "MILLRACE_PROVISION=true", "MILLRACE_LOG_FORMAT=json"))
	p.await(`"msg":"working"`)
	p.terminate()
	r := call(t, env, "check")
	r.want(t, exitDone, "warning  stream RESULTS: within the duplicate window", "warning  dead letters deadletter.>: within the duplicate window")
	compared := 0
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "nats stream edit ") && strings.Contains(line, "commits.") {
			compared++
			if !strings.Contains(r.out, "("+line+")") {
				t.Errorf("the check does not print this command: %s\n%s", line, r.out)
			}
		}
	}
	if compared != 2 {
		t.Errorf("the page has %d of the commands, want 2", compared)
	}
}
