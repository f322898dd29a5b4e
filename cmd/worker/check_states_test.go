package main

import (
	"slices"
	"testing"

	"millrace/internal/ingest/natstest"
)

// TestCheckComparesStates changes a setting that states depend on. `worker check` must print the error of the next start.
func TestCheckComparesStates(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := client(t, s)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=1",
		"MILLRACE_DEVICE=host", "MILLRACE_STATE_RECORDS=1000", "MILLRACE_OPERATORS=neardup"}
	call(t, env, "check").want(t, exitDone, " 0 errors")
	p := start(t, env)
	p.await("working")
	call(t, env, "check").want(t, exitDone, "no commit marker has a state of other settings than neardup?", " 0 errors")
	if _, err := js.Publish(t.Context(), "ingest.test", []byte("a document")); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	natstest.Until(t, "the result is stored", func() bool {
		_, err := stream.GetLastMsgForSubject(t.Context(), "results.test")
		return err == nil
	})
	if code := p.terminate(); code != exitDone {
		t.Fatalf("the worker ended with status %d", code)
	}
	call(t, env, "check").want(t, exitDone, "no commit marker has a state of other settings than neardup?", " 0 errors")
	for _, change := range []string{"MILLRACE_OPERATORS=neardup?k=5", "MILLRACE_STATE_RECORDS=2000"} {
		other := append(slices.Clone(env), change)
		said := []string{"the state belongs to neardup?", " of 1000 records in each of 1 partitions, and this worker is set to neardup?", "set MILLRACE_STATE_LOST=begin for one start"}
		call(t, other, "check").want(t, exitFailed, said...)
		call(t, other).want(t, exitFailed, said...)
		call(t, append(other, "MILLRACE_STATE_LOST=begin"), "check").want(t, exitDone, append(said[:2:2], "an empty one begins", " 0 errors")...)
	}
}
