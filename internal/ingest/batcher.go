package ingest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"millrace/internal/ingest/pace"
	"millrace/internal/streams"
)

// batcher packs deliveries into batches of a pipeline, one after the other: of two that filled at once each would be smaller.
type batcher struct {
	turn   sync.Mutex // for those who pack with it: one fills a batch while others hand over theirs
	pipe   *streams.Pipeline
	in     *queue
	linger time.Duration
	pace   *pace.Pace
	eased  <-chan struct{} // the pace's word that there are fewer batches on their way
	timer  *time.Timer     // stopped, or running for the batch that fills
	most   int             // payloads a batch; 0: as many as it holds
	budget *budget         // what deliveries hold of it is bounded for each batch

	carry    delivery // came for the last batch and did not fit
	carrying bool
}

func newBatcher(pipe *streams.Pipeline, in *queue, linger time.Duration, pace *pace.Pace, budget *budget) *batcher {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &batcher{pipe: pipe, in: in, linger: linger, pace: pace, eased: pace.Join(), timer: t, budget: budget}
}

// runBatcher fills and submits batches, in turn with others, until the deliveries end, the time for draining is over, or the
// pipeline is; then it returns nil or the reason. What it took and did not submit is left unread: see leaveUnread.
func (w *Worker) runBatcher(hard context.Context, f *batcher) error {
	for {
		g, err := w.pool.reserve(hard, f.pipe)
		switch {
		case err == nil:
		case hard.Err() != nil:
			return nil
		default:
			return err
		}
		b, why, err := w.pack(f, g)
		if b == nil {
			return err
		}
		if err := w.submit(f, b, g, why); err != nil {
			return err
		}
	}
}

// pack fills the next batch, whose group g is to be. It returns nil if no more deliveries come, or the pipeline has no batch.
func (w *Worker) pack(f *batcher, g *group) (*streams.Batch, streams.CloseReason, error) {
	f.turn.Lock()
	defer f.turn.Unlock()
	first, ok := f.first()
	if !ok {
		w.pool.unreserve(g, f.pipe)
		return nil, 0, nil
	}
	b, err := w.pool.begin(g, f.pipe)
	if err != nil {
		w.unread.add(first)
		return nil, 0, err
	}
	f.add(b, g, first)
	return b, f.fill(b, g), nil
}

// leaveUnread takes what is still on its way to a batcher that has ended, until the source ends too.
func (w *Worker) leaveUnread(f *batcher) {
	f.turn.Lock()
	defer f.turn.Unlock()
	for {
		d, ok := f.first()
		if !ok {
			return
		}
		w.unread.add(d)
	}
}

// submit hands a filled batch to the device. Of a batch that the device refuses see refused; only the end of the
// pipeline is an error.
func (w *Worker) submit(f *batcher, b *streams.Batch, g *group, why streams.CloseReason) error {
	err := w.pool.submit(b, g, f.pace, why)
	if err == nil {
		return nil
	}
	b.Release()
	w.refused(f.pipe, g, err)
	if lost(err) {
		return err
	}
	return nil
}

// first waits for the first payload of the next batch. It reports false when there will be none.
func (f *batcher) first() (delivery, bool) {
	if f.carrying {
		f.carrying = false
		return f.carry, true
	}
	d, ok := <-f.in.ch
	if ok {
		f.in.took(d)
	}
	return d, ok
}

// add packs a delivery into the batch and notes it in the group.
func (f *batcher) add(b *streams.Batch, g *group, d delivery) { appendTo(b, g, d) }

// appendTo packs a delivery into a batch in which there is room, and notes it in the group. Every payload fits an empty
// batch: larger ones are not admitted.
func appendTo(b *streams.Batch, g *group, d delivery) {
	if !b.Append(d.msg.Data()) {
		panic(fmt.Sprintf("ingest: payload of %d bytes does not fit a batch that it was measured for", len(d.msg.Data())))
	}
	g.add(d)
}

// fill adds what comes until the batch is full, its oldest payload has waited for the linger, or nothing is waiting and its
// lane is idle, so that waiting would only cost time. While enough batches are on their way to the server it waits for one of
// those instead; where it could not be stored sooner even beyond the linger, if not for long.
func (f *batcher) fill(b *streams.Batch, g *group) streams.CloseReason {
	lingering, overdue := false, false
	defer f.timer.Stop()
	for {
		if why, full := b.Full(); full {
			return why
		}
		if f.most > 0 && b.Rows() >= f.most {
			return streams.ClosedByCount
		}
		select {
		case d, ok := <-f.in.ch:
			if why, closed := f.place(b, g, d, ok); closed {
				return why
			}
			continue
		default:
		}
		if b.LaneIdle() && !f.pace.Kept() || overdue && !f.pace.Behind() {
			return streams.ClosedByLinger
		}
		short := f.budget.isShort()
		if isOver(short) {
			return streams.ClosedByBytes // the next payload waits for memory, which this batch may have
		}
		if !lingering {
			f.timer.Reset(max(f.linger-b.Oldest(), 0))
			lingering = true
		}
		select {
		case d, ok := <-f.in.ch:
			if why, closed := f.place(b, g, d, ok); closed {
				return why
			}
		case <-b.Idle(): // look again
		case <-short:
		case <-f.eased:
		case <-f.timer.C:
			if overdue {
				return streams.ClosedByLinger
			}
			overdue = true
			f.timer.Reset(pace.Wait)
		}
	}
}

// isOver reports whether a channel is closed.
func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// place adds a delivery, or keeps it for the next batch and closes this one. Headers do not go to the device, but a batch
// has them in memory until it is settled, so there may be as many bytes of them as of payloads. What all of its deliveries hold of
// the budget is bounded too.
func (f *batcher) place(b *streams.Batch, g *group, d delivery, ok bool) (streams.CloseReason, bool) {
	if !ok {
		return streams.ClosedByDrain, true
	}
	f.in.took(d)
	if !b.Fits(len(d.msg.Data())) || g.headers+d.headers > f.pipe.BatchBytes() || g.cost+d.cost > f.budget.batchShare() {
		f.carry, f.carrying = d, true
		return streams.ClosedByBytes, true
	}
	f.add(b, g, d)
	return 0, false
}
