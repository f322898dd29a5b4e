package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/lease/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
)

// acknowledgements tracks a lease's inputs until they are acknowledged. One message acknowledges all inputs before the
// first unsettled one. Methods are safe for concurrent use.
type acknowledgements struct {
	pool    *inflight.Pool
	confirm bool // whether the server confirms every acknowledgement
	log     *slog.Logger

	mu         sync.Mutex
	floor      partition.Floor
	number     uint64                   // consumer sequence of the lease's last input; initially that of the consumer's acknowledgement floor
	upTo       uint64                   // acknowledgement floor, a stream sequence
	last       pull.AckToken            // token of the last acknowledgement; nil before the first
	receipts   map[uint64]pull.AckToken // tokens of settled inputs that are in no batch, by stream sequence
	progressed bool                     // whether anything was acknowledged
	moved      chan struct{}            // signalled when inputs are acknowledged
}

func newAcknowledgements(pool *inflight.Pool, confirm bool, log *slog.Logger) *acknowledgements {
	return &acknowledgements{pool: pool, confirm: confirm, log: log, receipts: map[uint64]pull.AckToken{}, moved: make(chan struct{}, 1)}
}

// begin sets the lease's start to the consumer's acknowledgement floor.
func (a *acknowledgements) begin(floor jetstream.SequenceInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upTo, a.number, a.floor = floor.Stream, floor.Consumer, partition.NewFloor(floor.Stream)
}

// take records a delivery in a.floor and returns the verdict of Floor.Take. behind is the highest stream sequence that
// was recorded before.
func (a *acknowledgements) take(d *inflight.Delivery) (v partition.Verdict, behind uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	behind = a.floor.Highest()
	if v = a.floor.Take(d.ConsumerSequence, d.Sequence); v == partition.New {
		a.number = d.ConsumerSequence
	}
	return v, behind
}

// takeStored records an input that was read from the stream. It returns the consumer sequence for acknowledging the
// input, and the highest stream sequence that was recorded before. The server accepts an acknowledgement only if its
// consumer sequence is higher than the previous one. number therefore rises, up to limit, the consumer sequence of the
// last delivery.
func (a *acknowledgements) takeStored(sequence, limit uint64) (number, behind uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	behind = a.floor.Highest()
	a.floor.Add(sequence)
	a.number = min(a.number+1, limit)
	return a.number, behind
}

// caughtUp records that the lease has all inputs up to the given delivery.
func (a *acknowledgements) caughtUp(delivered jetstream.SequenceInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.floor.CaughtUp(delivered.Consumer)
	a.number = delivered.Consumer
}

// reached returns the stream sequence of the lease's last input, and the consumer sequence up to which no delivery is
// missing. sequence is 0 before begin, and number is 0 before the first input.
func (a *acknowledgements) reached() (sequence, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.floor.Highest(), a.floor.Delivered()
}

// acknowledged returns the acknowledgement floor as a stream sequence.
func (a *acknowledgements) acknowledged() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.upTo
}

// latest returns the token of the last acknowledgement (nil before the first), its stream sequence, and the number of
// unacknowledged inputs.
func (a *acknowledgements) latest() (msg pull.AckToken, sequence uint64, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.upTo, a.floor.Open()
}

// Stored implements results.Sink. It records that the results of deliveries are stored.
func (a *acknowledgements) Stored(_ context.Context, stored []*inflight.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range stored {
		a.floor.Settle(d.Sequence)
	}
}

// DeadLettered implements results.Sink. It records that the dead letter of a delivery is stored.
func (a *acknowledgements) DeadLettered(d *inflight.Delivery, _ results.Reason) {
	a.mu.Lock()
	a.floor.Settle(d.Sequence)
	a.mu.Unlock()
}

// Incomplete implements results.Sink. Its error ends the lease, and the server redelivers the input.
func (a *acknowledgements) Incomplete(_ *inflight.Batch, _ int, cause error) error { return cause }

// settledAlone records that an input outside any batch is settled. alone reports whether no other input is
// unacknowledged. Otherwise, the input is acknowledged together with the inputs before it.
func (a *acknowledgements) settledAlone(d *inflight.Delivery) (alone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone = a.floor.Open() == 1
	a.floor.Settle(d.Sequence)
	a.receipts[d.Sequence] = d.Msg.AckToken()
	a.pool.KeepReceipts(1)
	return alone
}

// awaitFirst waits until at most the last input is unacknowledged. It returns false if ctx is done first.
func (a *acknowledgements) awaitFirst(ctx context.Context) bool {
	for {
		a.mu.Lock()
		open := a.floor.Open()
		a.mu.Unlock()
		if open <= 1 {
			return true
		}
		select {
		case <-a.moved:
		case <-ctx.Done():
			return false
		}
	}
}

// dropReceipts releases the memory of receipts when the lease ends.
func (a *acknowledgements) dropReceipts() { a.pool.KeepReceipts(-len(a.receipts)) }

// acknowledge sends one message that acknowledges all inputs before the first unsettled one. g is the group that was
// settled last, or nil for an input outside any batch.
func (a *acknowledgements) acknowledge(ctx context.Context, g *inflight.Batch) error {
	a.mu.Lock()
	sequence, ok := a.floor.Acknowledge()
	if !ok {
		a.mu.Unlock()
		return nil
	}
	var msg pull.AckToken
	if receipt, ok := a.receipts[sequence]; ok {
		msg = receipt
	} else if i := g.Find(sequence); i >= 0 {
		msg = g.Items[i].Msg
	}
	for s := range a.receipts {
		if s <= sequence {
			delete(a.receipts, s)
			a.pool.KeepReceipts(-1)
		}
	}
	a.upTo, a.progressed, a.last = sequence, true, msg
	a.mu.Unlock()
	select {
	case a.moved <- struct{}{}:
	default:
	}
	if msg == nil {
		// This is a bug. The next lease recovers from it.
		return fmt.Errorf("no open input has sequence %d, which the next acknowledgement must name", sequence)
	}
	a.send(ctx, msg, sequence)
	return nil
}

// send sends an acknowledgement. If that fails, the server redelivers the inputs and drops their results as duplicates.
func (a *acknowledgements) send(ctx context.Context, msg pull.AckToken, sequence uint64) {
	acknowledge := func(context.Context, pull.AckToken) error { return msg.Ack() }
	if a.confirm && ctx.Err() == nil {
		acknowledge = confirm
	}
	if err := acknowledge(ctx, msg); err != nil {
		a.log.Warn("could not acknowledge; the inputs are delivered again, and their results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}

// confirm sends an acknowledgement, and waits until the server has processed it.
func confirm(ctx context.Context, msg pull.AckToken) error {
	ctx, cancel := context.WithTimeout(ctx, pull.ConfirmTimeout)
	defer cancel()
	return msg.DoubleAck(ctx)
}
