package lease

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// each acknowledges every input alone, gives it back, or terminates it after its dead letter. It is the acknowledger of shared delivery,
// and implements quarantine.Deliveries.
type each struct {
	*inputs
	ledger *ledger
	unread unread

	confirming  chan struct{}  // holds a token for each acknowledgement that waits for confirmation
	deadLetters chan struct{}  // holds a token for each dead letter that is being published
	publishing  sync.WaitGroup // counts the goroutines that publish dead letters and results of frames
}

const (
	// confirmAtOnce is the maximum number of acknowledgements that wait for confirmation at the same time. One after
	// another, each would cost a round trip.
	confirmAtOnce = 1024

	// deadLetterWindow is the maximum number of dead letters in flight.
	deadLetterWindow = 64
)

func newEach(i *inputs) *each {
	return &each{inputs: i, ledger: newLedger(i.o.Remembered), confirming: make(chan struct{}, confirmAtOnce), deadLetters: make(chan struct{}, deadLetterWindow)}
}

func (e *each) take(d *inflight.Delivery) verdict { return e.ledger.take(d) }

func (e *each) again(ctx context.Context, d *inflight.Delivery) {
	_ = e.done(ctx, d) // never fails
	e.store.AlreadyStored(d)
}

// done implements acknowledger. It doesn't wait for a confirmation, because the caller is the goroutine that pulls.
func (e *each) done(_ context.Context, d *inflight.Delivery) error {
	e.ledger.done(d)
	e.sent(d.Sequence, d.Msg.Ack())
	return nil
}

// flush implements acknowledger. Stored has acknowledged the inputs already.
func (e *each) flush(context.Context, *inflight.Batch) error { return nil }

func (e *each) leave(d inflight.Delivery) { e.unread.add(d) }

// giveBackUnread gives back the unread deliveries. The server redelivers them at once.
func (e *each) giveBackUnread() {
	for _, d := range e.unread.takeAll() {
		e.nak(&d, 0)
		e.o.Pool.Release(&d)
	}
}

// Stored implements results.Sink. If the server confirms acknowledgements, Stored waits up to pull.ConfirmTimeout for all of them, but not
// after the drain.
func (e *each) Stored(ctx context.Context, stored []*inflight.Delivery) {
	if !e.o.Confirm || ctx.Err() != nil {
		for _, d := range stored {
			_ = e.done(ctx, d)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	var waiting sync.WaitGroup
	for _, d := range stored {
		e.confirming <- struct{}{}
		waiting.Go(func() {
			defer func() { <-e.confirming }()
			e.ledger.done(d)
			e.send(ctx, d.Msg, d.Sequence)
		})
	}
	waiting.Wait()
}

// nak gives an input back. The server redelivers the input after delay, or after AckWait if the message is lost.
func (e *each) nak(d *inflight.Delivery, delay time.Duration) {
	e.ledger.giveBack(d)
	if err := d.Msg.NakWithDelay(delay); err != nil {
		e.log.Warn("could not give an input back; it is delivered again after AckWait", "sequence", d.Sequence, "error", err)
	}
	e.store.Report(inflight.Nacked, d)
}

// GiveBack implements quarantine.Deliveries. The delay is 0 if the worker stops, inflight.LossDelay if the device is
// lost, and d.NakDelay otherwise.
func (e *each) GiveBack(d *inflight.Delivery, why error) {
	delay := d.NakDelay()
	switch {
	case errors.Is(why, context.Canceled):
		delay = 0
	case streams.Ended(why):
		delay = inflight.LossDelay
	}
	e.nak(d, delay)
}

// giveBackAll gives back the unsettled deliveries of a batch.
func (e *each) giveBackAll(g *inflight.Batch, why error) {
	for i := range g.Items {
		if !g.IsSettled(i) {
			g.Settle(i)
			e.GiveBack(&g.Items[i], why)
		}
	}
}

// Store implements quarantine.Deliveries. If ctx ends, it gives back the inputs without a stored result.
func (e *each) Store(ctx context.Context, g *inflight.Batch) {
	if e.store.Store(ctx, g, &results.Buffers{}, e) != nil {
		e.giveBackAll(g, context.Canceled)
	}
}

// StoreLater implements quarantine.Deliveries.
func (e *each) StoreLater(ctx context.Context, g *inflight.Batch) {
	if len(g.Unsettled()) == 0 {
		e.o.Pool.Recycle(g)
		return
	}
	e.publishing.Go(func() {
		e.Store(ctx, g)
		e.o.Pool.Recycle(g)
	})
}

// giveUp implements acknowledger. It publishes the dead letter in a separate goroutine, and gives the input back if that fails. giveUp waits
// only while deadLetterWindow dead letters are in flight. If ctx ends during that wait, it gives the input back.
func (e *each) giveUp(ctx, _ context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	select {
	case e.deadLetters <- struct{}{}:
	case <-ctx.Done():
		e.nak(&d, 0)
		e.o.Pool.Release(&d)
		return nil
	}
	e.publishing.Go(func() {
		defer func() { <-e.deadLetters }()
		defer e.o.Pool.Release(&d)
		if !e.DeadLetter(ctx, &d, why, cause) {
			e.nak(&d, d.NakDelay())
		}
	})
	return nil
}

// DeadLetter implements quarantine.Deliveries. It publishes the dead letter, and then terminates the input.
func (e *each) DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool {
	if e.store.PublishDeadLetter(ctx, d, why, cause) != nil {
		return false
	}
	e.DeadLettered(d, why)
	e.store.ReportDeadLetter(d, why, cause)
	return true
}

// DeadLettered implements results.Sink. It terminates the input.
func (e *each) DeadLettered(d *inflight.Delivery, why results.Reason) {
	e.ledger.done(d)
	if err := d.Msg.TermWithReason(string(why)); err != nil {
		e.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.Sequence, "error", err)
	}
}

// Incomplete implements results.Sink.
func (e *each) Incomplete(b *inflight.Batch, i int, cause error) error {
	b.Settle(i)
	e.GiveBack(&b.Items[i], cause)
	return nil
}

// unread collects received deliveries that will not be packed into a batch. They are given back after the end of the
// pull, because the server would otherwise deliver them to this worker again.
type unread struct {
	mu   sync.Mutex
	list []inflight.Delivery
}

func (u *unread) add(d inflight.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.list = append(u.list, d)
}

func (u *unread) takeAll() []inflight.Delivery {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	u.list = nil
	return list
}

// ledger records the inputs that this worker has in flight or has recently finished. The server redelivers an input
// after AckWait, even if the input is still in the client's queue. Such a redelivery doesn't increase the quarantine
// level, and the input isn't computed again.
type ledger struct {
	mu sync.Mutex
	// held contains, by sequence, the time when the stream stored the input. A recreated stream reuses sequences.
	held     map[uint64]time.Time
	finished map[uint64]time.Time
	order    []uint64 // keys of finished, as a ring; the oldest key is at next
	next     int

	returned map[uint64]time.Time // inputs that this worker gave back
	limit    int                  // maximum number of finished, and of returned inputs
	awaited  int                  // number of held inputs at which await returns
	fewer    chan struct{}        // closed when the number of held inputs reaches awaited; nil while no goroutine waits
}

// remembered is the default of Options.Remembered. A worker finishes about as many inputs in a second. Package memory reserves the memory
// for as many finished and as many returned inputs.
const remembered = 1 << 16

func newLedger(limit int) *ledger {
	return &ledger{held: map[uint64]time.Time{}, finished: map[uint64]time.Time{}, limit: cmp.Or(limit, remembered)}
}

// take records a new input as in flight. An input in flight is held, and one that is done is known. If an input that is done is delivered
// for the first time, a recreated consumer replays it. The input is then new and computed again.
func (l *ledger) take(d *inflight.Delivery) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.held[d.Sequence]; ok && at.Equal(d.Stored) {
		return heldInput
	}
	if at, ok := l.finished[d.Sequence]; ok && at.Equal(d.Stored) && d.NumDelivered > 1 {
		return knownInput
	}
	l.held[d.Sequence] = d.Stored
	return newInput
}

// giveBack records that a delivery was given back and will be redelivered.
func (l *ledger) giveBack(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	if l.returned == nil || len(l.returned) >= l.limit {
		l.returned = map[uint64]time.Time{} // bounds the map; a dropped input is quarantined
	}
	l.returned[d.Sequence] = d.Stored
}

// gaveBack reports whether this worker gave an input back. The process survived the input, so the input did not break
// the device.
func (l *ledger) gaveBack(d *inflight.Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.returned[d.Sequence]
	return ok && at.Equal(d.Stored)
}

// release removes a delivery's input from held, and wakes await. The caller holds l.mu.
func (l *ledger) release(d *inflight.Delivery) {
	delete(l.held, d.Sequence)
	if l.fewer != nil && len(l.held) <= l.awaited {
		close(l.fewer)
		l.fewer = nil
	}
}

// await waits until at most n inputs are in flight, or returns ctx's error. Only one goroutine may wait at a time.
func (l *ledger) await(ctx context.Context, n int) error {
	l.mu.Lock()
	if len(l.held) <= n {
		l.mu.Unlock()
		return nil
	}
	fewer := make(chan struct{})
	l.awaited, l.fewer = n, fewer
	l.mu.Unlock()
	select {
	case <-fewer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// done records that the result or the dead letter of a delivery is stored.
func (l *ledger) done(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	delete(l.returned, d.Sequence)
	if _, again := l.finished[d.Sequence]; !again {
		if len(l.order) < l.limit {
			l.order = append(l.order, d.Sequence)
		} else {
			delete(l.finished, l.order[l.next])
			l.order[l.next] = d.Sequence
			l.next = (l.next + 1) % l.limit
		}
	}
	l.finished[d.Sequence] = d.Stored
}

// size returns the number of inputs in flight.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
