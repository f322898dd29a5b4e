package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pace"
	"millrace/internal/ingest/store"
	"millrace/internal/streams"
)

// pipelineBatches is the leaseBatches of a lease whose batches a pipeline computes and a worker publishes.
type pipelineBatches struct {
	l       *lease
	w       *Worker
	e       *exclusive
	pipe    *streams.Pipeline
	log     *slog.Logger
	batcher *batcher // the goroutine's that fills batches
	settler *settler // the goroutine's that settles them
	pace    *pace.Pace
}

func newPipelineBatches(l *lease, e *exclusive, pipe *streams.Pipeline) *pipelineBatches {
	p := pace.NewInOrder(e.under[pipe])
	return &pipelineBatches{
		l: l, w: e.w, e: e, pipe: pipe, log: l.log, pace: p,
		batcher: newBatcher(pipe, l.out, e.w.opts.Linger, p, &e.w.budget),
		settler: &settler{w: e.w, pipe: pipe, desk: &desk{}},
	}
}

func (b *pipelineBatches) await() bool {
	f := b.batcher
	f.carry, f.carrying = f.first()
	return f.carrying
}

func (b *pipelineBatches) pack(ctx context.Context, bound func(most int) int) (*leaseBatch, error) {
	f := b.batcher
	g, err := b.w.reserve(ctx, b.pipe)
	if err != nil {
		return nil, nil // the end of the lease; what was read and not submitted comes again
	}
	batch, err := b.pipe.Take()
	if err != nil {
		b.w.freeGroups.put(g)
		return nil, err
	}
	f.most = bound(b.largest())
	b.w.inHand.Add(1)
	first, _ := f.first()
	f.carry = delivery{}
	f.add(batch, g, first)
	return &leaseBatch{group: g, batch: batch, why: f.fill(batch, g)}, nil
}

func (b *pipelineBatches) submit(packed *leaseBatch) {
	g, batch := packed.group, packed.batch
	b.w.flying[b.pipe][batch.Slot()] = g
	b.w.countPayloads(g, batch)
	g.keep(b.pace)
	if err := batch.Submit(packed.why); err != nil {
		record := *batch.Record()
		batch.Release()
		g.ended(record, err) // settleInOrder looks for the payload to blame
	}
}

func (b *pipelineBatches) discard(packed *leaseBatch) {
	packed.batch.Release()
	b.w.recycle(packed.group)
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

func (b *pipelineBatches) report(g *group) {
	b.pipe.Report(&g.record)
	b.w.tell(g, &g.record)
}

func (b *pipelineBatches) recycle(g *group) {
	b.settler.tidy()
	b.w.keep.desk(b.settler.desk)
	b.w.recycle(g)
}

func (b *pipelineBatches) now() time.Duration  { return b.pipe.Now() }
func (b *pipelineBatches) largest() int        { return b.pipe.BatchPayloads() }
func (b *pipelineBatches) deviceFailed() error { return b.pipe.Err() }
func (b *pipelineBatches) stopPublishing()     { b.w.keep.forget(b.settler.desk) }

func (b *pipelineBatches) stopPacking() {
	if b.batcher.carrying {
		b.w.release(&b.batcher.carry)
	}
}

// publish stores the results of a batch; the payload of one that never can be stored becomes a dead letter. It retries until
// all are stored, or drainCtx ends.
func (b *pipelineBatches) publish(drainCtx context.Context, g *group) error {
	s := b.settler
	s.left = append(s.left[:0], unsettled(g)...)
	if len(s.left) == 0 {
		return nil // a batch of payloads that were all given up
	}
	for attempt := 1; ; attempt++ {
		settle := func() error { return b.settleStored(drainCtx, g) }
		err := s.settleKnown(drainCtx, g, settle)
		if err == nil && len(s.left) > 0 {
			err = s.publishOnce(drainCtx, g, attempt)
			if err := settle(); err != nil {
				return err
			}
		}
		switch {
		case len(s.left) == 0:
			return nil
		case drainCtx.Err() != nil:
			return drainCtx.Err()
		case b.w.links.closed():
			return jetstream.ErrConnectionClosed
		}
		b.w.publishFailed(err, len(s.left), attempt)
		if !b.w.awaitRetry(drainCtx, attempt) {
			return drainCtx.Err()
		}
	}
}

// settleStored notes which results are stored, and keeps the rest in the settler's left.
func (b *pipelineBatches) settleStored(drainCtx context.Context, g *group) error {
	s := b.settler
	now := time.Now()
	headroom := g.headroom(now, b.w.ackWait)
	rest := s.left[:0]
	for n, i := range s.left {
		d := &g.items[i]
		switch a := s.answers[n]; {
		case a.Err == nil:
			b.l.settled(g, i)
			b.w.hasResult(d)
			b.w.observer.Settled(outcome(a), len(d.msg.Data()), len(g.body(i)), now.Sub(d.received), headroom)
		case store.Unstorable(a.Err):
			if err := b.l.host.publishDeadLetter(drainCtx, d, TooLarge, fmt.Errorf("its result cannot be stored: %w", a.Err)); err != nil {
				return err
			}
			b.l.settled(g, i)
		default:
			rest = append(rest, i)
		}
	}
	s.left = rest
	return nil
}
