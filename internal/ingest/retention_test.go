package ingest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/streams"
)

// TestExclusiveOnAStreamWithInterest: every input is processed once, and then the stream removes it.
func TestExclusiveOnAStreamWithInterest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 3
	if _, err := r.JS.CreateStream(r.Ctx(), jetstream.StreamConfig{
		Name: "INGEST", Subjects: []string{"ingest.>"}, Retention: jetstream.InterestPolicy,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(3)}}.>"},
	}); err != nil {
		t.Fatalf("nats-server %s: %v", embedded.Version, err)
	}
	r.provision()
	const n = 1000
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Config{})
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	s := r.Stream("INGEST")
	until(t, "the stream has let go of all inputs", func() bool {
		info, err := s.Info(r.Ctx())
		return err == nil && info.State.Msgs == 0
	})
}
