package ingest

import (
	"testing"
	"time"

	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// TestAConsumerThatCannotDeliverIsNoticed uses a consumer whose limit is smaller than its next message. The worker
// reports the problem, and continues after the limit is raised.
func TestAConsumerThatCannotDeliverIsNoticed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
			r.provision()
			name := r.opts.Consumer
			if r.opts.Exclusive {
				name = topology.PartitionConsumer(name, 0)
			}
			bound := func(bytes int) {
				c := r.Consumer(r.opts.Stream, name)
				config := c.CachedInfo().Config
				config.MaxRequestMaxBytes = bytes
				r.changePartition(config)
			}
			bound(64 << 10)
			r.publish(1, document)
			run := r.prepare(hostDevice(t), streams.Options{})
			run.worker.stalls.After, run.worker.stalls.UnreadyAfter = 3*time.Second, 3*time.Second
			run.start()
			r.tally.awaitStored(t, 1)
			if err := run.worker.Stalled(); err != nil {
				t.Errorf("with nothing wrong: %v", err)
			}
			r.publishFrom(1, 2, someBytes(100<<10))
			r.publishFrom(2, 100, document)
			r.tally.awaitFunc(t, "stalled", 1, r.tally.stalledNow)
			r.Log.Await(t, "the consumer has messages and delivers none")
			r.Log.Await(t, "max_request_max_bytes")
			if err := run.worker.Stalled(); err == nil {
				t.Error("the worker counts as ready")
			}
			bound(0)
			r.tally.awaitStored(t, 100)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
		})
	}
}
