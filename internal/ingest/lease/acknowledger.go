package lease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// acknowledger settles deliveries and updates the ledger. It acknowledges a delivery, gives it back, or publishes its dead
// letter. It implements results.Sink and quarantine.Deliveries.
type acknowledger struct {
	ledger  *ledger
	pool    *inflight.Pool
	results resultStore
	batches inflight.BatchObserver  // may be nil
	records inflight.RecordObserver // may be nil
	log     *slog.Logger

	confirm    bool          // whether the server confirms every acknowledgement
	confirming chan struct{} // holds a token for each acknowledgement that waits for confirmation

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

func newAcknowledger(o Options, store resultStore) *acknowledger {
	return &acknowledger{
		ledger: newLedger(), pool: o.Pool, results: store, batches: o.Batches, records: o.Records, log: o.Log,
		confirm: o.Confirm, confirming: make(chan struct{}, confirmAtOnce), deadLetters: make(chan struct{}, deadLetterWindow),
	}
}

// Stored implements results.Sink. It acknowledges inputs with stored results. If confirm is set, it waits up to
// pull.ConfirmTimeout until the server has confirmed all acknowledgements. If an acknowledgement is lost, the server
// redelivers the input and drops its second result as a duplicate.
func (a *acknowledger) Stored(ctx context.Context, stored []*inflight.Delivery) {
	if !a.confirm || ctx.Err() != nil { // after the drain, Stored does not wait
		for _, d := range stored {
			a.ack(d)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	var waiting sync.WaitGroup
	for _, d := range stored {
		a.confirming <- struct{}{}
		waiting.Go(func() {
			defer func() { <-a.confirming }()
			a.ackConfirmed(ctx, d)
		})
	}
	waiting.Wait()
}

// ack acknowledges an input. If that fails, the server redelivers the input.
func (a *acknowledger) ack(d *inflight.Delivery) {
	a.ledger.settle(d)
	if err := d.Msg.Ack(); err != nil {
		a.log.Warn("could not acknowledge an input; it is delivered again", "sequence", d.Sequence, "error", err)
	}
}

// ackConfirmed acknowledges an input and waits until the server confirms the acknowledgement or ctx ends.
func (a *acknowledger) ackConfirmed(ctx context.Context, d *inflight.Delivery) {
	if ctx.Err() != nil {
		a.ack(d)
		return
	}
	a.ledger.settle(d)
	if err := d.Msg.DoubleAck(ctx); err != nil {
		a.log.Warn("an acknowledgement was not confirmed; if it is lost, its input is delivered again",
			"sequence", d.Sequence, "error", err)
	}
}

// nak gives an input back. The server redelivers the input after delay, or after AckWait if the message is lost.
func (a *acknowledger) nak(d *inflight.Delivery, delay time.Duration) {
	a.ledger.giveBack(d)
	if err := d.Msg.NakWithDelay(delay); err != nil {
		a.log.Warn("could not give an input back; it is delivered again after AckWait", "sequence", d.Sequence, "error", err)
	}
	a.results.Report(inflight.Nacked, d)
}

// GiveBack implements quarantine.Deliveries. The delay is 0 if the worker stops, inflight.LossDelay if the device is
// lost, and d.NakDelay otherwise.
func (a *acknowledger) GiveBack(d *inflight.Delivery, why error) {
	delay := d.NakDelay()
	switch {
	case errors.Is(why, context.Canceled):
		delay = 0
	case streams.Ended(why):
		delay = inflight.LossDelay
	}
	a.nak(d, delay)
}

// giveBackAll gives back the unsettled deliveries of a batch.
func (a *acknowledger) giveBackAll(g *inflight.Batch, why error) {
	for i := range g.Items {
		if !g.IsSettled(i) {
			g.Settle(i)
			a.GiveBack(&g.Items[i], why)
		}
	}
}

// settle publishes the results of a batch from collector, and settles its deliveries. If ctx ends, it gives back the inputs without
// a stored result.
func (a *acknowledger) settle(ctx context.Context, pipe *streams.Pipeline, g *inflight.Batch, buffers *results.Buffers) {
	err := a.results.Store(ctx, g, buffers, a)
	published := pipe.Now()
	if err != nil {
		a.giveBackAll(g, context.Canceled)
	}
	g.Record.Publish.End = published - buffers.Settling
	g.Record.Settle = streams.Span{Start: published - buffers.Settling, End: pipe.Now()}
	g.Report(a.batches, a.records)
}

// Store implements quarantine.Deliveries. If ctx ends, it gives back the inputs without a stored result.
func (a *acknowledger) Store(ctx context.Context, g *inflight.Batch) {
	if a.results.Store(ctx, g, &results.Buffers{}, a) != nil {
		a.giveBackAll(g, context.Canceled)
	}
}

// StoreLater implements quarantine.Deliveries.
func (a *acknowledger) StoreLater(ctx context.Context, g *inflight.Batch) {
	if len(g.Unsettled()) == 0 {
		a.pool.Recycle(g)
		return
	}
	a.publishing.Go(func() {
		a.Store(ctx, g)
		a.pool.Recycle(g)
	})
}

// GiveUp takes over a delivery and its memory, and publishes the dead letter in a
// separate goroutine. If the publish fails, it gives the delivery back. GiveUp waits only while deadLetterWindow dead
// letters are in flight. If ctx ends during that wait, it gives the delivery back.
func (a *acknowledger) GiveUp(ctx context.Context, d inflight.Delivery, why results.Reason, cause error) {
	select {
	case a.deadLetters <- struct{}{}:
	case <-ctx.Done():
		a.nak(&d, 0)
		a.pool.Release(&d)
		return
	}
	a.publishing.Go(func() {
		defer func() { <-a.deadLetters }()
		defer a.pool.Release(&d)
		if !a.DeadLetter(ctx, &d, why, cause) {
			a.nak(&d, d.NakDelay())
		}
	})
}

// DeadLetter implements quarantine.Deliveries. It publishes the dead letter, and then terminates the input.
func (a *acknowledger) DeadLetter(ctx context.Context, d *inflight.Delivery, why results.Reason, cause error) bool {
	if a.results.PublishDeadLetter(ctx, d, why, cause) != nil {
		return false
	}
	a.DeadLettered(d, why)
	a.results.ReportDeadLetter(d, why, cause)
	return true
}

// DeadLettered implements results.Sink. It terminates the input.
func (a *acknowledger) DeadLettered(d *inflight.Delivery, why results.Reason) {
	a.ledger.settle(d)
	if err := d.Msg.TermWithReason(string(why)); err != nil {
		a.log.Warn("a payload was dead-lettered but could not be terminated; it comes again", "sequence", d.Sequence, "error", err)
	}
}

// Incomplete implements results.Sink.
func (a *acknowledger) Incomplete(b *inflight.Batch, i int, cause error) error {
	b.Settle(i)
	a.GiveBack(&b.Items[i], cause)
	return nil
}

// ledger records the inputs that this worker has in flight or has recently settled. The server redelivers an input
// after AckWait, even if the input is still in the client's queue. Such a redelivery doesn't increase the quarantine
// level, and the input isn't computed again.
type ledger struct {
	mu sync.Mutex
	// held contains, by sequence, the time when the stream stored the input. A recreated stream reuses sequences.
	held    map[uint64]time.Time
	settled map[uint64]time.Time
	order   []uint64 // keys of settled, as a ring; the oldest key is at next
	next    int

	returned map[uint64]time.Time // inputs that this worker gave back
	awaited  int                  // number of held inputs at which await returns
	fewer    chan struct{}        // closed when the number of held inputs reaches awaited; nil while no goroutine waits
}

// remembered is the maximum number of settled inputs in a ledger. A worker settles about as many in a second. Package memory
// reserves the memory for as many settled and as many returned inputs.
const remembered = 1 << 16

func newLedger() *ledger {
	return &ledger{held: map[uint64]time.Time{}, settled: make(map[uint64]time.Time, remembered)}
}

// standing is the state of a delivery in the ledger.
type standing uint8

const (
	unknown  standing = iota // the input was not in the ledger, and is in flight now
	inFlight                 // an earlier delivery of the input is in flight
	done                     // the input's result or dead letter is stored
)

// take returns the state of a delivery's input, and records an unknown input as in flight. If a settled input is
// delivered for the first time, a recreated consumer replays it. The input is then unknown and computed again.
func (l *ledger) take(d *inflight.Delivery) standing {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.held[d.Sequence]; ok && at.Equal(d.Stored) {
		return inFlight
	}
	if at, ok := l.settled[d.Sequence]; ok && at.Equal(d.Stored) && d.NumDelivered > 1 {
		return done
	}
	l.held[d.Sequence] = d.Stored
	return unknown
}

// giveBack records that a delivery was given back and will be redelivered.
func (l *ledger) giveBack(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	if l.returned == nil || len(l.returned) >= remembered {
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

// settle records that the result or the dead letter of a delivery is stored.
func (l *ledger) settle(d *inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(d)
	delete(l.returned, d.Sequence)
	if _, again := l.settled[d.Sequence]; !again {
		if len(l.order) < remembered {
			l.order = append(l.order, d.Sequence)
		} else {
			delete(l.settled, l.order[l.next])
			l.order[l.next] = d.Sequence
			l.next = (l.next + 1) % remembered
		}
	}
	l.settled[d.Sequence] = d.Stored
}

// size returns the number of inputs in flight.
func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}
