package ingest

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/trim"
	"millrace/internal/streams"
)

// TestExclusiveOnAStreamWithInterest shows that the stream removes every input once it is processed. Its retention
// can be changed while workers run.
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
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	r.awaitEmpty("INGEST")

	// Change the stream as the check advises, while the worker runs.
	r.update("INGEST", func(c *jetstream.StreamConfig) {
		c.Retention, c.Discard, c.Metadata = jetstream.LimitsPolicy, jetstream.DiscardNew, trim.WithMark(*c, r.opts.Consumers())
	})
	r.publishFrom(n, 2*n, document)
	r.tally.awaitStored(t, 2*n)
	r.awaitEmpty("INGEST")
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(2*n, document)
}

// TestProcessedInputsAreRemoved shows that the workers of two deployments on one stream remove an input once both
// have processed it.
func TestProcessedInputsAreRemoved(t *testing.T) {
	t.Parallel()
	for _, exclusive := range []bool{false, true} {
		t.Run(fmt.Sprintf("exclusive=%v", exclusive), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions, r.opts.Kept.Trim = exclusive, 3, true
			r.provision()
			first := r.opts
			const n = 1000
			r.publish(n, document)
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			r.awaitEmpty("INGEST")

			r.opts.Consumer, r.opts.ResultStream, r.opts.ResultPrefix, r.opts.DeadLetterPrefix = "other", "OTHER", "other", "otherdead"
			r.provision()
			r.publishFrom(n, 2*n, document)
			r.tally.awaitStored(t, 2*n)
			if held := r.Stream("INGEST").CachedInfo().State.Msgs; held != n {
				t.Errorf("the stream has %d inputs before the second deployment has processed them, want %d", held, n)
			}
			also := r.run(hostDevice(t), streams.Options{})
			r.awaitEmpty("INGEST")
			for _, run := range []*running{run, also} {
				if err := run.drain(); err != nil {
					t.Errorf("Run: %v", err)
				}
			}
			if got := r.Stream("OTHER").CachedInfo().State; got.Msgs < n {
				t.Errorf("the second deployment has stored %d results and markers, want at least %d", got.Msgs, n)
			}
			r.opts = first
			r.wantAll(2*n, document)
		})
	}
}

func (r *rig) awaitEmpty(stream string) {
	r.Helper()
	s := r.Stream(stream)
	r.Until("stream "+stream+" is empty", func() bool {
		info, err := s.Info(r.Ctx())
		return err == nil && info.State.Msgs == 0
	})
}
