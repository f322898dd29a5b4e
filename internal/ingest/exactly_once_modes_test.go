package ingest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/streams"
)

// TestExactlyOnceBetweenModes stops workers with exclusive delivery while they hold inputs. Workers with shared
// delivery process new inputs, and then exclusive workers return. Each input has one result. The shared workers
// process no input that exclusive workers left.
func TestExactlyOnceBetweenModes(t *testing.T) {
	t.Parallel()
	r := commitRig(t, 2)
	exclusive, shared := r.opts.Topology, r.opts.Topology
	shared.Exclusive = false
	published := 0
	leave := func(n int) {
		r.publishFrom(published, published+n, document)
		published += n
		stored := r.tally.stored()
		run := r.run(hostDevice(t), streams.Options{BatchPayloads: 8})
		r.tally.awaitStored(t, stored+n/40)
		run.stop()
		_ = run.wait()
	}
	leave(1000)
	left := r.unacknowledged()

	r.update("INGEST", func(c *jetstream.StreamConfig) { c.SubjectTransform = nil })
	r.opts.Topology = shared
	r.provision()
	r.publishFrom(published, published+200, document)
	published += 200
	before := r.tally.stored()
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, before+200)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}

	r.update("INGEST", func(c *jetstream.StreamConfig) {
		c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(2)}}.>"}
	})
	r.opts.Topology = exclusive
	leave(1000)
	r.work(streams.Options{})
	r.deliverAgain()
	r.work(streams.Options{})
	r.wantAll(published, document)
	if left == 0 {
		t.Error("no work was left in hand")
	}
}
