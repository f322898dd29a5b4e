package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/streams"
)

// TestEveryPayloadGoesThroughTheSmallestBudget lets a worker hold one delivery at a time. Every input must be
// settled. Some are redelivered, one exceeds a batch, and an operator fails on one.
func TestEveryPayloadGoesThroughTheSmallestBudget(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			const n, batchBytes = 150, 64 << 10
			unfit := []int{40}
			if r.opts.Exclusive {
				unfit = nil // the lease would restart, which other tests cover
			}
			given := unfitAt(unfit...)
			payload := func(i int) []byte {
				if i == 70 {
					return make([]byte, batchBytes+1)
				}
				return given(i)
			}
			r.publish(n, payload)
			if !r.opts.Exclusive {
				r.deliverBefore(20)
			}
			run := r.prepare(openHost(t, pickyKernels()), streams.Options{BatchBytes: batchBytes})
			run.worker.pool.SetLimit(1)
			run.start()
			r.tally.await(t, inflight.DeadLettered, 1+len(unfit))
			r.tally.awaitStored(t, n-1-len(unfit))
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			if m := run.worker.Memory(); m.Waits == 0 {
				t.Error("nothing ever waited for memory")
			}
			found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
			if len(found) != n-1-len(unfit) || len(dead) != 1+len(unfit) {
				t.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(dead), n-1-len(unfit), 1+len(unfit))
			}
		})
	}
}

func (r *rig) deliverBefore(n int) {
	r.Helper()
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	came, err := c.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		r.Fatal(err)
	}
	for m := range came.Messages() {
		if err := m.Nak(); err != nil {
			r.Fatal(err)
		}
	}
	if err := came.Error(); err != nil {
		r.Fatal(err)
	}
}

// TestBatchStaysWithinItsShare uses a busy lane, so batches fill, and memory for only a few payloads in each batch.
func TestBatchStaysWithinItsShare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n, share = 400, 10
	seen := &records{}
	payload := func(int) []byte { return []byte("x") }
	r.publish(n, payload)
	r.opts.Records = seen
	run := r.prepare(hostDevice(t), streams.Options{})
	one := run.worker.pool.PerPayload()
	run.worker.pool.SetLimit(4 * share * one)
	run.start()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	largest := 0
	for _, b := range seen.all() {
		largest = max(largest, b.Payloads)
	}
	if largest > share || largest < share/2 {
		t.Errorf("the largest batch has %d payloads, and there is memory for %d", largest, share)
	}
}

// TestMemoryIsDivided shows that prefetched messages use at most a quarter of the memory, unless the largest messages
// need more. Too little memory is an error.
func TestMemoryIsDivided(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ partitions, mib int }{{0, 64}, {0, 2048}, {8, 160}, {8, 512}, {64, 1024}} {
		t.Run(fmt.Sprintf("%d partitions, %d MiB", c.partitions, c.mib), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = c.partitions > 0, c.partitions
			r.provision()
			r.opts.Memory = int64(c.mib) << 20
			w := r.prepare(hostDevice(t), streams.Options{}).worker
			consumer, err := findConsumer(r.Ctx(), r.JS, r.opts.Topology)
			if err != nil {
				t.Fatal(err)
			}
			size := w.opts.pullSize(consumer, w.nc)
			if bytes := size.Limit(w.nc).Bytes(); bytes < int(w.nc.MaxPayload()) || size.Messages < pull.MinMessages {
				t.Errorf("a request is for %d messages and %d bytes: the largest message stalls the consumer", size.Messages, bytes)
			}
			pulled := int64(w.opts.consumers()) * size.Memory(w.nc)
			if floor := int64(w.opts.consumers()) * 2 * int64(pull.NewLimit(w.nc, 0, 0).Bytes()+pull.MinMessages*pull.MessageCost); pulled > max(r.opts.Memory/pullShare, floor) {
				t.Errorf("what is pulled ahead may take %d MiB of %d", pulled>>20, c.mib)
			}
			if all := w.pool.Memory().Limit + w.opts.fixedMemory(w.nc, consumer.CachedInfo().Config, len(w.conns)); all > r.opts.Memory {
				t.Errorf("all of it together may take %d MiB of %d", all>>20, c.mib)
			}
		})
	}
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 64
	r.provision()
	r.opts.Memory = 50 << 20
	p := r.pipeline(hostDevice(t), streams.Options{})
	_, err := NewWorker(r.Ctx(), r.NC, []*streams.Pipeline{p}, r.opts)
	if !errors.Is(err, inflight.ErrMemory) || !strings.Contains(err.Error(), "MILLRACE_PARTITIONS") {
		t.Errorf("with too little memory NewWorker = %v, want ErrMemory and what to lower", err)
	}
}
