package partitioned

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// sharedDevice is what the leases of all partitions on one device share.
type sharedDevice struct {
	pipe      *streams.Pipeline
	gate      sync.RWMutex // held by what is on the device; exclusively by what must be alone there
	submitted atomic.Int32 // batches that are submitted and not settled
}

// pipelineBatches is the leaseBatches of a lease whose batches a pipeline computes and a worker publishes.
type pipelineBatches struct {
	l       *lease
	s       *Settings
	device  *sharedDevice
	pipe    *streams.Pipeline
	log     *slog.Logger
	batcher *inflight.Batcher // only the goroutine that fills batches uses it
	first   inflight.Delivery // of the next batch, between await and pack
	buffers results.Buffers   // only the goroutine that settles batches uses them
}

func newPipelineBatches(l *lease, s *Settings, device *sharedDevice) *pipelineBatches {
	window := inflight.NewOrderedWindow(&device.submitted)
	return &pipelineBatches{
		l: l, s: s, device: device, pipe: device.pipe, log: l.log,
		batcher: s.Pool.NewBatcher(device.pipe, l.out, s.Linger, window, nil),
	}
}

func (b *pipelineBatches) await() (ok bool) {
	b.first, ok = b.batcher.First()
	return ok
}

func (b *pipelineBatches) pack(ctx context.Context, bound func(most int) int) (*leaseBatch, error) {
	g, err := b.s.Pool.Reserve(ctx, b.pipe)
	if err != nil {
		return nil, nil // the end of the lease; what was read and not submitted comes again
	}
	batch, err := b.s.Pool.Begin(g, b.pipe)
	if err != nil {
		return nil, err
	}
	b.batcher.MaxRows = bound(b.largest())
	g.Pack(batch, b.first)
	b.first = inflight.Delivery{}
	return &leaseBatch{group: g, batch: batch, why: b.batcher.Fill(batch, g)}, nil
}

func (b *pipelineBatches) submit(packed *leaseBatch) {
	g, batch := packed.group, packed.batch
	if err := b.s.Pool.Submit(batch, g, b.batcher.Window, packed.why); err != nil {
		record := *batch.ReadRecord()
		batch.Release()
		g.Complete(record, err) // settleInOrder looks for the payload to blame
	}
}

func (b *pipelineBatches) discard(packed *leaseBatch) {
	packed.batch.Release()
	b.s.Pool.Recycle(packed.group)
}

func (b *pipelineBatches) share() (leave func()) {
	b.device.gate.RLock()
	return b.device.gate.RUnlock
}

func (b *pipelineBatches) isolate() (leave func()) {
	b.device.gate.Lock()
	return b.device.gate.Unlock
}

func (b *pipelineBatches) probe(ctx context.Context) error {
	return b.pipe.ProbeUnder(ctx, b.device.gate.RLocker())
}

func (b *pipelineBatches) report(g *inflight.Batch) {
	b.pipe.Report(&g.Record)
	g.Report(b.s.Batches, &g.Record)
}

func (b *pipelineBatches) recycle(g *inflight.Batch) {
	b.buffers.Tidy(b.s.Pool)
	b.s.Pool.Recycle(g)
}

func (b *pipelineBatches) now() time.Duration  { return b.pipe.Now() }
func (b *pipelineBatches) largest() int        { return b.pipe.BatchPayloads() }
func (b *pipelineBatches) deviceFailed() error { return b.pipe.Err() }
func (b *pipelineBatches) stopPublishing()     { b.buffers.Free(b.s.Pool) }

func (b *pipelineBatches) stopPacking() {
	b.s.Pool.Release(&b.first)
	b.batcher.Drop()
}

// publish stores the results of a batch. If one never can be stored, its payload becomes a dead letter.
func (b *pipelineBatches) publish(drainCtx context.Context, g *inflight.Batch) error {
	return b.s.Results.Settle(drainCtx, b.pipe, g, &b.buffers, b)
}

// Stored implements results.Sink.
func (b *pipelineBatches) Stored(_ context.Context, stored []*inflight.Delivery) { b.l.settle(stored) }

// Undeliverable implements results.Sink.
func (b *pipelineBatches) Undeliverable(ctx context.Context, g *inflight.Batch, i int, cause error) error {
	if err := b.l.host.publishDeadLetter(ctx, &g.Items[i], results.TooLarge, cause); err != nil {
		return err
	}
	b.l.settled(g, i)
	return nil
}
