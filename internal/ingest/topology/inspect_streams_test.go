package topology

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/trim"
)

func TestInspectWarnsOfLimitsThatDropUnreadResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		limits jetstream.StreamConfig
		want   []string // parts of the warning; empty means no warning
	}{
		{"no limits", jetstream.StreamConfig{}, nil},
		{"messages", jetstream.StreamConfig{MaxMsgs: 8591},
			[]string{"max_msgs 8591, discard old", "nats stream edit NAME --max-msgs=-1)", "nats stream edit NAME --discard new)"}},
		{"bytes", jetstream.StreamConfig{MaxBytes: 1 << 20},
			[]string{"max_bytes 1048576, discard old", "nats stream edit NAME --max-bytes=-1)", "--discard new"}},
		{"messages, the newest refused", jetstream.StreamConfig{MaxMsgs: 8591, MaxBytes: 1 << 20, Discard: jetstream.DiscardNew}, nil},
		{"age", jetstream.StreamConfig{MaxAge: time.Hour}, []string{"max_age 1h0m0s, discard old", "nats stream edit NAME --max-age=0s)"}},
		{"age, the newest refused", jetstream.StreamConfig{MaxAge: time.Hour, Discard: jetstream.DiscardNew},
			[]string{"max_age 1h0m0s, discard new", "nats stream edit NAME --max-age=0s)"}},
		{"of a subject", jetstream.StreamConfig{MaxMsgsPerSubject: 1},
			[]string{"max_msgs_per_subject 1, discard old", "nats stream edit NAME --max-msgs-per-subject=-1)"}},
		{"of a subject, the newest refused for the stream alone", jetstream.StreamConfig{MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew},
			[]string{"max_msgs_per_subject 1, discard new"}},
		{"of a subject, the newest refused", jetstream.StreamConfig{
			MaxMsgsPerSubject: 1, MaxMsgs: 10, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true}, nil},
		{"all, on a work queue", jetstream.StreamConfig{MaxMsgs: 5, MaxBytes: 7000, MaxAge: time.Minute, MaxMsgsPerSubject: 3, Retention: jetstream.WorkQueuePolicy},
			[]string{"max_msgs 5, max_bytes 7000, max_msgs_per_subject 3, max_age 1m0s, discard old",
				"nats stream edit NAME --max-msgs=-1 --max-bytes=-1 --max-msgs-per-subject=-1 --max-age=0s)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for name, at := range map[string]struct{ prefix, what string }{
				"RESULTS": {"results.>", "warning stream RESULTS: drops"}, "GRAVES": {"deadletter.>", "warning dead letters deadletter.>: drops"},
			} {
				s := c.limits
				s.Name, s.Subjects = name, []string{at.prefix}
				s.Duplicates = min(2*time.Minute, max(s.MaxAge, 0)) // maximum that the server allows
				r.Create(s)
				lines := r.found(1000, roomy)
				if c.want == nil {
					for _, line := range lines {
						if strings.Contains(line, "nobody has read") {
							t.Error(line)
						}
					}
					continue
				}
				parts := []string{at.what}
				for _, part := range c.want {
					parts = append(parts, strings.ReplaceAll(part, "NAME", name))
				}
				wantLine(t, lines, parts...)
			}
		})
	}
}

// TestTheServerDropsWhatIsWarnedOf compares findDrops with the server. Each stream gets more messages than its limits
// allow. It must keep all confirmed messages, or Inspect must warn about it.
func TestTheServerDropsWhatIsWarnedOf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, limits := range map[string]jetstream.StreamConfig{
		"old":           {MaxMsgs: 5},
		"old-queue":     {MaxMsgs: 5, Retention: jetstream.WorkQueuePolicy},
		"old-bytes":     {MaxBytes: 500},
		"new":           {MaxMsgs: 5, Discard: jetstream.DiscardNew},
		"new-bytes":     {MaxBytes: 500, Discard: jetstream.DiscardNew},
		"subject":       {MaxMsgsPerSubject: 5},
		"subject-new":   {MaxMsgsPerSubject: 5, Discard: jetstream.DiscardNew},
		"subject-newer": {MaxMsgsPerSubject: 5, MaxMsgs: 100, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true},
	} {
		limits.Name, limits.Subjects = name, []string{name}
		r.Create(limits)
		confirmed := uint64(0)
		for range 20 {
			if _, err := r.JS.Publish(r.Ctx(), name, make([]byte, 50)); err == nil {
				confirmed++
			}
		}
		s := r.Stream(name)
		dropped := s.CachedInfo().State.Msgs < confirmed
		limits, _ := findDrops(s.CachedInfo().Config)
		if warned := len(limits) > 0; dropped != warned || confirmed < 5 {
			t.Errorf("%s: it confirmed %d messages and holds %d; warned of: %v", name, confirmed, s.CachedInfo().State.Msgs, warned)
		}
	}
}

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

// TestInspectSaysWhetherProcessedInputsGo changes the streams that a worker has created, once for each row.
func TestInspectSaysWhetherProcessedInputsGo(t *testing.T) {
	t.Parallel()
	const about = "processed inputs in stream INGEST: "
	for name, c := range map[string]struct {
		change func(r *rig, s *jetstream.StreamConfig)
		want   []string // parts of the warning; nil means no warning
	}{
		"as made": {func(*rig, *jetstream.StreamConfig) {}, nil},
		"interest": {func(_ *rig, s *jetstream.StreamConfig) {
			s.Retention, s.Metadata = jetstream.InterestPolicy, map[string]string{"team": "a"}
		}, []string{
			"nats-server may remove inputs that nobody has processed", "nats stream edit INGEST --retention limits --discard new --metadata " +
				"'millrace-consumers=millrace-0,millrace-1' --metadata 'millrace-trim=INGEST' --metadata 'team=a')"}},
		"no mark": {func(_ *rig, s *jetstream.StreamConfig) { s.Metadata = nil }, []string{"the stream refuses new inputs when it is full",
			"nats stream edit INGEST --metadata 'millrace-consumers=millrace-0,millrace-1' --metadata 'millrace-trim=INGEST')"}},
		"no mark, and an age": {func(_ *rig, s *jetstream.StreamConfig) { s.Metadata, s.MaxAge = nil, 1e14 }, nil},
		"every input stays":   {func(r *rig, s *jetstream.StreamConfig) { s.Metadata, r.topology.Kept.AskedEverything = nil, true }, nil},
		"the mark, and every input should stay": {func(r *rig, _ *jetstream.StreamConfig) { r.topology.Kept.AskedEverything = true },
			[]string{"MILLRACE_STREAM_RETENTION asks for limits", "remove millrace-trim"}},
		"a consumer of another deployment is gone": {func(_ *rig, s *jetstream.StreamConfig) { s.Metadata[trim.ConsumersKey] += ",other" },
			[]string{"they stay: registered consumers don't exist: other."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.exclusive(2)
			r.provision()
			s := r.StreamConfig("INGEST")
			c.change(r, &s)
			r.Create(s)
			lines := r.found(1000, roomy)
			if c.want != nil {
				wantLine(t, lines, append([]string{"warning " + about}, c.want...)...)
			} else if all := strings.Join(lines, "\n"); strings.Contains(all, "warning "+about) {
				t.Errorf("a warning:\n%s", all)
			}
		})
	}
}

// TestInspectNamesWhoHoldsTheFloor shows that the finding names the consumer that needs the first input of the
// stream.
func TestInspectNamesWhoHoldsTheFloor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	for range 3 {
		if _, err := r.JS.Publish(r.Ctx(), "ingest.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	wantLine(t, r.found(1000, roomy), "ok processed inputs in stream INGEST: workers remove them; consumer millrace holds the floor, 3 sequences before the end")
}

// TestInspectOfAWorkQueue shows that acknowledged inputs are reported. A server that was killed may keep them.
func TestInspectOfAWorkQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.topology.inputPlan().StreamConfig
	c.Retention, c.Metadata = jetstream.WorkQueuePolicy, nil
	r.Create(c)
	r.provision()
	for range 3 {
		if _, err := r.JS.Publish(r.Ctx(), "ingest.a", nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range r.found(1000, roomy) {
		if strings.Contains(line, "processed inputs") {
			t.Errorf("a healthy work queue: %s", line)
		}
	}
	info, consumer := r.Stream("INGEST").CachedInfo(), r.ConsumerInfo("INGEST", "millrace")
	all := consumer.Config.FilterSubjects
	for _, c := range []struct {
		// floor is the last acknowledged input. The server seems to have kept the acknowledged inputs.
		floor   uint64
		filters []string
		want    string // part of the advice; empty means no finding
	}{{0, all, ""}, {1, all, "nats stream purge INGEST --seq 2 --force"}, {2, all, "nats stream purge INGEST --seq 3 --force"}, {2, []string{"ingest.b"}, ""}} {
		consumer.AckFloor.Stream, consumer.Config.FilterSubject, consumer.Config.FilterSubjects = c.floor, "", c.filters
		i := &inspection{l: r.topology}
		i.leftInQueue("", info, consumer)
		if found := len(i.findings) > 0; found != (c.want != "") || found && !strings.Contains(i.findings[0].Advice, c.want) {
			t.Errorf("with filters %q and everything up to %d acknowledged, findings %v, want %q", c.filters, c.floor, i.findings, c.want)
		}
	}
}
