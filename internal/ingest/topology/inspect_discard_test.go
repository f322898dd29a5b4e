package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
		if warned := len(findDrops(s.CachedInfo().Config).limits) > 0; dropped != warned || confirmed < 5 {
			t.Errorf("%s: it confirmed %d messages and holds %d; warned of: %v", name, confirmed, s.CachedInfo().State.Msgs, warned)
		}
	}
}
