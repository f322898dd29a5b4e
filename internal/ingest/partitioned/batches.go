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

// leaseBatches packs a lease's inputs into batches, computes them, and publishes their results.
type leaseBatches interface {
	// await waits for the first payload of the next batch. It reports false when there are no more.
	await() bool

	// pack fills the next batch. bound returns how many of most payloads it may have. The batch is nil when the lease ends.
	pack(ctx context.Context, bound func(most int) int) (*leaseBatch, error)

	// submit hands a batch to the device, and completes its group when it has left the device.
	submit(b *leaseBatch)
	discard(b *leaseBatch)

	// share waits until no payload is alone on the device, isolate until nothing is on it. Both return what undoes them.
	share() (leave func())
	isolate() (leave func())

	// probe has the device compute payloads of known content.
	probe(ctx context.Context) error

	// rescue computes what it can of a batch that failed. publish stores the results of a batch. Both enter what is stored into the
	// lease's acknowledgements, and return nil when everything is stored.
	rescue(ctx context.Context, g *inflight.Batch) error
	publish(ctx context.Context, g *inflight.Batch) error

	// report tells observers about a batch, and recycle takes it back.
	report(g *inflight.Batch)
	recycle(g *inflight.Batch)

	now() time.Duration  // the clock of stage timestamps
	largest() int        // payloads in a batch without reason for caution
	deviceFailed() error // why the device is lost; nil if it is not
	stopPacking()        // releases what await found and no batch took
	stopPublishing()
}

// leaseBatch is a batch that is packed and not submitted.
type leaseBatch struct {
	group *inflight.Batch
	batch *streams.Batch
	why   streams.CloseReason
}

// sharedDevice is what the leases of all partitions on one device share.
type sharedDevice struct {
	pipe      *streams.Pipeline
	gate      sync.RWMutex // held by what is on the device; exclusively by what must be alone there
	submitted atomic.Int32 // batches that are submitted and not settled
}

// pipelineBatches is the leaseBatches of a lease whose batches a pipeline computes and a worker publishes.
type pipelineBatches struct {
	lease   *leaseState
	s       *Settings
	device  *sharedDevice
	pipe    *streams.Pipeline
	log     *slog.Logger
	batcher *inflight.Batcher // only the goroutine that fills batches uses it
	first   inflight.Delivery // of the next batch, between await and pack
	buffers results.Buffers   // only the goroutine that settles batches uses them
}

func newPipelineBatches(l *leaseState, s *Settings, device *sharedDevice) *pipelineBatches {
	window := inflight.NewOrderedWindow(&device.submitted)
	return &pipelineBatches{
		lease: l, s: s, device: device, pipe: device.pipe, log: l.log,
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
		g.Complete(record, err) // the settler looks for the payload to blame
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
	g.Record.Report(b.s.Records)
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
func (b *pipelineBatches) Stored(_ context.Context, stored []*inflight.Delivery) {
	b.lease.acks.settle(stored)
}

// Undeliverable implements results.Sink.
func (b *pipelineBatches) Undeliverable(ctx context.Context, g *inflight.Batch, i int, cause error) error {
	if err := b.lease.host.publishDeadLetter(ctx, &g.Items[i], results.TooLarge, cause); err != nil {
		return err
	}
	b.lease.acks.settled(g, i)
	return nil
}
