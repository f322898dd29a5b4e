package topology

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/trim"
)

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
	c := inputSettings(r.topology)
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
		i := trimInspector{streamInspector{&inspection{l: r.topology}}}
		i.leftInQueue("", info, consumer)
		if found := len(i.findings) > 0; found != (c.want != "") || found && !strings.Contains(i.findings[0].Advice, c.want) {
			t.Errorf("with filters %q and everything up to %d acknowledged, findings %v, want %q", c.filters, c.floor, i.findings, c.want)
		}
	}
}
