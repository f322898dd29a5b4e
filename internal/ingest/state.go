package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/streams"
)

// Stage is where a worker is in its life.
type Stage int32

// The stages.
const (
	Starting Stage = iota
	Running
	Draining
	Stopped
)

func (s Stage) String() string { return [...]string{"starting", "running", "draining", "stopped"}[s] }

// Status is a worker's state at one moment. Reading it asks neither the server nor a device.
type Status struct {
	Stage     Stage
	Connected bool
	InHand    int           // batches being filled, computed or settled
	Progress  time.Time     // when something last moved on
	AckWait   time.Duration // the consumer's
}

// Status reads the worker's state.
func (w *Worker) Status() Status {
	moved := time.Unix(0, w.moved.Load())
	for _, p := range w.pipes {
		if at := p.Progress(); at.After(moved) {
			moved = at
		}
	}
	return Status{
		Stage: Stage(w.stage.Load()), Connected: w.links.connected(),
		InHand: int(w.inHand.Load()), Progress: moved, AckWait: w.ackWait,
	}
}

// progressed notes that something moved on.
func (w *Worker) progressed() { w.moved.Store(time.Now().UnixNano()) }

// admit decides whether a delivery is to be processed. What never can be is given up here; what was processed
// already, though the server did not hear of it in time, is acknowledged again.
func (w *Worker) admit(ctx context.Context, d *delivery) bool {
	d.level = d.deliveries - 1
	if w.ledger.gaveBack(d) {
		d.level = 0
	}
	switch w.ledger.take(d) {
	case inHand:
		w.release(d)
		return false
	case done:
		w.ack(d)
		w.release(d)
		w.observer.Settled(Duplicate, len(d.msg.Data()), 0, time.Since(d.received), w.ackWait-time.Since(d.received))
		return false
	}
	var why Reason
	var cause error
	switch n := len(d.msg.Data()); {
	case n > w.maxBytes:
		why = TooLarge
		cause = tooLarge(n, w.maxBytes)
	case d.deliveries > w.limit:
		why, cause = w.tooOften(d)
	default:
		return true
	}
	w.giveUp(ctx, *d, why, cause)
	d.cost = 0 // it is the dead letter's
	return false
}

// tooLarge is the reason of a payload that no batch takes.
func tooLarge(bytes, most int) error {
	return fmt.Errorf("payload of %d bytes, and a batch takes %d: raise MILLRACE_BATCH_BYTES", bytes, most)
}

// nak gives an input back for a while. Where that fails AckWait does the same.
func (w *Worker) nak(d *delivery, delay time.Duration) {
	w.ledger.giveBack(d)
	if err := d.msg.NakWithDelay(delay); err != nil && w.badSettle.due() {
		w.log.Warn("could not give an input back; it is delivered again after AckWait", "sequence", d.sequence, "error", err)
	}
	w.observer.Settled(Nacked, len(d.msg.Data()), 0, time.Since(d.received), w.ackWait-time.Since(d.received))
}

// giveBack gives back a delivery that a batch has taken.
func (w *Worker) giveBack(d *delivery, why error) {
	delay := d.nakDelay()
	switch {
	case errors.Is(why, context.Canceled):
		delay = 0 // nothing is wrong with it: this worker is stopping
	case lost(why):
		delay = lossDelay
	}
	w.nak(d, delay)
}

// unread collects deliveries that were taken from the server and that no batch takes any more. They go back
// only when the pull has ended: given back sooner, the server would deliver them to this worker again. What
// the client and the worker may hold before a batch bounds it.
type unread struct {
	mu   sync.Mutex
	list []delivery
}

func (u *unread) add(d delivery) {
	u.mu.Lock()
	u.list = append(u.list, d)
	u.mu.Unlock()
}

// giveBackUnread lets another worker have, at once, what this one has not touched.
func (w *Worker) giveBackUnread() {
	for i := range w.unread.list {
		w.nak(&w.unread.list[i], 0)
		w.release(&w.unread.list[i])
	}
	w.unread.list = nil
}

// nakGroup gives back everything of a group that is not settled.
func (w *Worker) nakGroup(g *group, why error) {
	for i := range g.items {
		if !g.settled[i] {
			g.settle(i)
			w.giveBack(&g.items[i], why)
		}
	}
	w.progressed()
}

// giveUpUnfinished gives back what a drain that ran out of time left on the devices.
func (w *Worker) giveUpUnfinished() {
	for _, g := range w.groups {
		w.nakGroup(g, context.Canceled)
		w.releaseAll(g)
		g.clear()
	}
	w.inHand.Store(0)
}

// lastFlush is how long sending the last acknowledgements may take when the time for draining is over.
const lastFlush = time.Second

// flush makes sure that the server has every acknowledgement, as long as hard lasts and lastFlush longer.
func (w *Worker) flush(hard context.Context) error {
	ctx, cancel := context.WithTimeout(context.Background(), w.opts.DrainTimeout+lastFlush)
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(lastFlush, cancel) })()
	if err := w.links.flush(ctx); err != nil {
		return fmt.Errorf("the last acknowledgements may not have reached the server; what they were for is delivered again: %w", err)
	}
	return nil
}

// throttle lets one of many log lines through a second: with the connection gone every input has the same to
// say.
type throttle struct{ last atomic.Int64 } // UnixNano

func (t *throttle) due() bool {
	now := time.Now().UnixNano()
	last := t.last.Load()
	return now-last >= int64(time.Second) && t.last.CompareAndSwap(last, now)
}

// publishFailed says that results cannot be stored.
func (w *Worker) publishFailed(err error, results, attempt int) {
	if !w.badPublish.due() {
		return
	}
	w.log.Warn("results could not be stored and are published again; nothing is acknowledged meanwhile",
		"results", results, "attempt", attempt, "stream", w.opts.ResultStream, "error", err)
}

// countPayloads counts the payload bytes of a batch that is submitted, until its group is recycled.
func (w *Worker) countPayloads(g *group, b *streams.Batch) {
	g.bytes = int64(b.Bytes() + g.headers)
	w.payloads.force(g.bytes)
}

// recycle takes a group whose deliveries are all settled, or are left to come again.
func (w *Worker) recycle(g *group) {
	w.releaseAll(g)
	g.clear()
	w.keep.group(g)
	w.inHand.Add(-1)
	w.freeGroups.put(g)
}

// awaitGroups waits until every group is settled, or hard ends.
func (w *Worker) awaitGroups(hard context.Context) {
	held := 0
	for held < w.freeGroups.size() {
		select {
		case <-w.freeGroups.there:
			held++
		case <-hard.Done():
			held = w.freeGroups.size() // settlers give up by themselves now
		}
	}
}
