package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestInspectOfStreamsThatStoreNotEverything changes a stream that a worker has created, once for each row.
func TestInspectOfStreamsThatStoreNotEverything(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream string
		change func(s *jetstream.StreamConfig)
		want   []string
	}{
		"sealed results":      {"RESULTS", func(s *jetstream.StreamConfig) { s.Sealed = true }, []string{"error stream RESULTS: is sealed"}},
		"sealed dead letters": {"RESULTS_DEADLETTER", func(s *jetstream.StreamConfig) { s.Sealed = true }, []string{"error dead letters deadletter.>: is sealed"}},
		"no acknowledgements": {"RESULTS_DEADLETTER", func(s *jetstream.StreamConfig) {
			s.NoAck, s.AllowBatchPublish, s.AllowAtomicPublish = true, false, false
		},
			[]string{"error dead letters deadletter.>: has no_ack set, so the server never confirms that a dead letter is stored"}},
		"one result for each subject": {"RESULTS", func(s *jetstream.StreamConfig) { s.MaxMsgsPerSubject, s.DiscardNewPerSubject = 1, true },
			[]string{"warning stream RESULTS: refuses messages on a subject that has 1", "--max-msgs-per-subject=-1"}},
		"small results": {"RESULTS", func(s *jetstream.StreamConfig) { s.MaxMsgSize = 100 }, []string{
			"warning stream RESULTS: a result with its headers may have 1024 bytes, and stream RESULTS takes messages of 100", "raise max_msg_size of stream RESULTS"}},
		"mapped results": {"RESULTS", func(s *jetstream.StreamConfig) { s.SubjectTransform = transform("results.>", "archive.>") },
			[]string{`warning stream RESULTS: maps subjects ("results.>" to "archive.>")`, "documented filters"}},
		"inputs that go": {"INGEST", func(s *jetstream.StreamConfig) { s.Discard = jetstream.DiscardOld },
			[]string{"warning stream INGEST: deletes inputs that nobody has processed: max_bytes 4294967296, discard old", "nats stream edit INGEST --discard new"}},
		"inputs that expire": {"INGEST", func(s *jetstream.StreamConfig) { s.MaxAge = time.Hour }, []string{"warning stream INGEST: deletes inputs that nobody has processed: max_age 1h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.provision()
			s := r.StreamConfig(c.stream)
			c.change(&s)
			r.Create(s)
			wantLine(t, r.found(1000, roomy), c.want...)
		})
	}
	t.Run("counters", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, AllowMsgCounter: true, AllowDirect: true})
		wantLine(t, r.found(1000, roomy), "error stream RESULTS: counts (allow_msg_counter)")
	})
}

// TestInspectOfPausedConsumers covers both delivery modes.
func TestInspectOfPausedConsumers(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		r := newRig(t)
		name := "millrace"
		if exclusive {
			r.exclusive(2)
			name = "millrace-1"
		}
		r.provision()
		if _, err := r.JS.PauseConsumer(r.Ctx(), "INGEST", name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		wantLine(t, r.found(1000, roomy), "warning consumer "+name+": is paused for ", fmt.Sprintf("nats consumer resume INGEST %s --force", name))
	}
}

// TestInspectOfAConsumerWithoutAFilter shows that a consumer without a filter is reported only if the stream has
// subjects outside MILLRACE_SUBJECTS.
func TestInspectOfAConsumerWithoutAFilter(t *testing.T) {
	t.Parallel()
	for subjects, bad := range map[string]bool{"ingest.>": false, "ingest.a": true, ">": false} {
		r := newRig(t)
		r.provision()
		c := r.Consumer("INGEST", "millrace").CachedInfo().Config
		c.FilterSubject, c.FilterSubjects = "", nil
		if _, err := r.JS.UpdateConsumer(r.Ctx(), "INGEST", c); err != nil {
			t.Fatal(err)
		}
		r.topology.Subjects = []string{subjects}
		lines := strings.Join(r.found(1000, roomy), "\n")
		if got := strings.Contains(lines, "has no filter, so it gets every input of stream INGEST"); got != bad {
			t.Errorf("%s: reported %v, want %v:\n%s", subjects, got, bad, lines)
		}
	}
}
