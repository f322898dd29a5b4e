package ingest

import (
	"context"
	"log/slog"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// pipelineBatches is the leaseBatches of a lease whose batches a pipeline computes and a worker publishes.
type pipelineBatches struct {
	l       *lease
	w       *Worker
	e       *exclusive
	pipe    *streams.Pipeline
	log     *slog.Logger
	batcher *inflight.Batcher // only the goroutine that fills batches uses it
	first   inflight.Delivery // of the next batch, between await and pack
	buffers results.Buffers   // only the goroutine that settles batches uses them
}

func newPipelineBatches(l *lease, e *exclusive, pipe *streams.Pipeline) *pipelineBatches {
	window := inflight.NewOrderedWindow(e.under[pipe])
	return &pipelineBatches{
		l: l, w: e.w, e: e, pipe: pipe, log: l.log,
		batcher: e.w.pool.NewBatcher(pipe, l.out, e.w.opts.Linger, window, nil),
	}
}

func (b *pipelineBatches) await() (ok bool) {
	b.first, ok = b.batcher.First()
	return ok
}

func (b *pipelineBatches) pack(ctx context.Context, bound func(most int) int) (*leaseBatch, error) {
	g, err := b.w.pool.Reserve(ctx, b.pipe)
	if err != nil {
		return nil, nil // the end of the lease; what was read and not submitted comes again
	}
	batch, err := b.w.pool.Begin(g, b.pipe)
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
	if err := b.w.pool.Submit(batch, g, b.batcher.Window, packed.why); err != nil {
		record := *batch.ReadRecord()
		batch.Release()
		g.Complete(record, err) // settleInOrder looks for the payload to blame
	}
}

func (b *pipelineBatches) discard(packed *leaseBatch) {
	packed.batch.Release()
	b.w.pool.Recycle(packed.group)
}

func (b *pipelineBatches) share() (leave func()) {
	gate := b.e.gates[b.pipe]
	gate.RLock()
	return gate.RUnlock
}

func (b *pipelineBatches) isolate() (leave func()) {
	gate := b.e.gates[b.pipe]
	gate.Lock()
	return gate.Unlock
}

func (b *pipelineBatches) probe(ctx context.Context) error {
	return b.pipe.ProbeUnder(ctx, b.e.gates[b.pipe].RLocker())
}

func (b *pipelineBatches) report(g *inflight.Batch) {
	g.Record.Report(b.w.opts.Records)
	g.Report(b.w.opts.Batches, &g.Record)
}

func (b *pipelineBatches) recycle(g *inflight.Batch) {
	b.buffers.Tidy(b.w.pool)
	b.w.pool.Recycle(g)
}

func (b *pipelineBatches) now() time.Duration  { return b.pipe.Now() }
func (b *pipelineBatches) largest() int        { return b.pipe.BatchPayloads() }
func (b *pipelineBatches) deviceFailed() error { return b.pipe.Err() }
func (b *pipelineBatches) stopPublishing()     { b.buffers.Free(b.w.pool) }

func (b *pipelineBatches) stopPacking() {
	b.w.pool.Release(&b.first)
	b.batcher.Drop()
}

// publish stores the results of a batch. If one never can be stored, its payload becomes a dead letter.
func (b *pipelineBatches) publish(drainCtx context.Context, g *inflight.Batch) error {
	return b.w.results.Settle(drainCtx, b.pipe, g, &b.buffers, b)
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
