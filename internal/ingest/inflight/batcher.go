package inflight

import (
	"runtime"
	"sync"
	"time"

	"millrace/internal/streams"
)

// Batcher packs deliveries into batches of a pipeline, one after the other: of two that filled at once each would be smaller.
type Batcher struct {
	packing sync.Mutex // held by the goroutine that fills a batch while others submit theirs
	pool    *Pool
	Pipe    *streams.Pipeline
	in      *Queue
	linger  time.Duration
	Window  *Window
	freed   <-chan struct{} // signalled when there is room in the window
	timer   *time.Timer     // stopped, or running for the batch that fills
	MaxRows int             // payloads of a batch; 0: as many as it holds
	unread  func(Delivery)  // takes what no batch takes any more

	carry    Delivery // came for the last batch and did not fit
	carrying bool
}

// NewBatcher makes a batcher of what comes through in. unread takes the deliveries that next and leave don't pack.
func (p *Pool) NewBatcher(pipe *streams.Pipeline, in *Queue, linger time.Duration, window *Window, unread func(Delivery)) *Batcher {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Batcher{pool: p, Pipe: pipe, in: in, linger: linger, Window: window, freed: window.Join(), timer: t, unread: unread}
}

// Next fills the next batch, for which g was reserved. It returns nil if no more deliveries come, or the pipeline has no batch.
func (f *Batcher) Next(g *Batch) (*streams.Batch, streams.CloseReason, error) {
	f.packing.Lock()
	defer f.packing.Unlock()
	first, ok := f.First()
	if !ok {
		f.pool.unreserve(g, f.Pipe)
		return nil, 0, nil
	}
	b, err := f.pool.Begin(g, f.Pipe)
	if err != nil {
		f.unread(first)
		return nil, 0, err
	}
	g.Pack(b, first)
	return b, f.Fill(b, g), nil
}

// Leave takes what is still on its way to a batcher that has ended, until the queue is closed.
func (f *Batcher) Leave() {
	f.packing.Lock()
	defer f.packing.Unlock()
	for d, ok := f.First(); ok; d, ok = f.First() {
		f.unread(d)
	}
}

// First waits for the first payload of the next batch. It reports false when there will be none.
func (f *Batcher) First() (Delivery, bool) {
	if f.carrying {
		d := f.carry
		f.carry, f.carrying = Delivery{}, false
		return d, true
	}
	return f.in.Get()
}

// Drop releases what came for the last batch and did not fit.
func (f *Batcher) Drop() {
	f.pool.Release(&f.carry)
	f.carry, f.carrying = Delivery{}, false
}

// Fill adds what comes until the batch is full, its oldest payload has waited for the linger, or nothing is waiting and its
// lane is idle, so that waiting would only cost time. While enough batches are on their way to the server it waits for one of
// those instead; where it could not be stored sooner even beyond the linger, if not for long.
func (f *Batcher) Fill(b *streams.Batch, g *Batch) streams.CloseReason {
	lingering, overdue := false, false
	defer f.timer.Stop()
	for {
		if why, full := b.Full(); full {
			return why
		}
		if f.MaxRows > 0 && b.Rows() >= f.MaxRows {
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
		if b.LaneIdle() && !f.Window.Full() || overdue && !f.Window.PublishFull() {
			return streams.ClosedByLinger
		}
		short := f.pool.memory.isShort()
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
		case <-f.freed:
		case <-f.timer.C:
			if overdue {
				return streams.ClosedByLinger
			}
			overdue = true
			f.timer.Reset(WindowWait)
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
func (f *Batcher) place(b *streams.Batch, g *Batch, d Delivery, ok bool) (streams.CloseReason, bool) {
	if !ok {
		return streams.ClosedByDrain, true
	}
	f.in.took(d)
	if !b.Fits(len(d.Msg.Data())) || g.headers+d.HeaderBytes > f.Pipe.BatchBytes() || g.cost+d.Cost > f.pool.memory.batchShare() {
		f.carry, f.carrying = d, true
		return streams.ClosedByBytes, true
	}
	g.Pack(b, d)
	return 0, false
}

// Batchers is how many goroutines pack and submit batches for a pipeline. One packs at a time, since a core copies payloads
// faster than a server delivers them. But a submission takes as long as a small batch is on a GPU: one alone would keep
// lanes waiting that could overlap. More than half of the cores would take them from the server's and the client's work.
func Batchers(p *streams.Pipeline) int {
	return max(min(p.Lanes(), runtime.GOMAXPROCS(0)/2), 1)
}
