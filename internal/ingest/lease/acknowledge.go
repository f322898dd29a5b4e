package lease

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
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
	floor      floor
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
	a.upTo, a.number, a.floor = floor.Stream, floor.Consumer, newFloor(floor.Stream)
}

// take records a delivery in a.floor and returns the verdict of floor.take. behind is the highest stream sequence that
// was recorded before.
func (a *acknowledgements) take(d *inflight.Delivery) (v verdict, behind uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	behind = a.floor.highest
	if v = a.floor.take(d.ConsumerSequence, d.Sequence); v == newInput {
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
	behind = a.floor.highest
	a.floor.add(sequence)
	a.number = min(a.number+1, limit)
	return a.number, behind
}

// caughtUp records that the lease has all inputs up to the given delivery.
func (a *acknowledgements) caughtUp(delivered jetstream.SequenceInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.floor.caughtUp(delivered.Consumer)
	a.number = delivered.Consumer
}

// reached returns the stream sequence of the lease's last input, and the consumer sequence up to which no delivery is
// missing. sequence is 0 before begin, and number is 0 before the first input.
func (a *acknowledgements) reached() (sequence, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.floor.highest, a.floor.delivered
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
	return a.last, a.upTo, a.floor.open()
}

// Stored implements results.Sink. It records that the results of deliveries are stored.
func (a *acknowledgements) Stored(_ context.Context, stored []*inflight.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range stored {
		a.floor.settle(d.Sequence)
	}
}

// DeadLettered implements results.Sink. It records that the dead letter of a delivery is stored.
func (a *acknowledgements) DeadLettered(d *inflight.Delivery, _ results.Reason) {
	a.mu.Lock()
	a.floor.settle(d.Sequence)
	a.mu.Unlock()
}

// Incomplete implements results.Sink. Its error ends the lease, and the server redelivers the input.
func (a *acknowledgements) Incomplete(_ *inflight.Batch, _ int, cause error) error { return cause }

// settledAlone records that an input outside any batch is settled. alone reports whether no other input is
// unacknowledged. Otherwise, the input is acknowledged together with the inputs before it.
func (a *acknowledgements) settledAlone(d *inflight.Delivery) (alone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone = a.floor.open() == 1
	a.floor.settle(d.Sequence)
	a.receipts[d.Sequence] = d.Msg.AckToken()
	a.pool.KeepReceipts(1)
	return alone
}

// awaitFirst waits until at most the last input is unacknowledged. It returns false if ctx is done first.
func (a *acknowledgements) awaitFirst(ctx context.Context) bool {
	for {
		a.mu.Lock()
		open := a.floor.open()
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
	sequence, ok := a.floor.acknowledge()
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

// floor tracks the inputs that a lease has taken, and the inputs that its next acknowledgement may cover. A lease takes
// an input by receiving its delivery or by reading the input from the stream.
//
// One acknowledgement covers all earlier inputs of the partition, even inputs that another worker received. The lease
// must therefore take and settle all of them. It first reads the earlier deliveries from the stream. Under one pin, the
// consumer uses each consumer sequence once, and delivers an input for the first time only after all inputs before it.
// A lease that receives every consumer sequence therefore misses no input. If a sequence is missing, the lease reads
// the delivered inputs from the stream again.
//
// A floor is not safe for concurrent use.
type floor struct {
	delivered uint64      // consumer sequence up to which every delivery has arrived, or its input has been read from the stream
	highest   uint64      // stream sequence of the last input that was taken, or of the lease's start; all earlier inputs are taken or acknowledged
	inputs    []openInput // inputs that were taken and are not acknowledged yet, in stream order
	first     int         // index of the first unacknowledged input in inputs
}

// newFloor returns the floor of a lease that starts after stream sequence acknowledged.
func newFloor(acknowledged uint64) floor { return floor{highest: acknowledged} }

// openInput is an input that is not acknowledged yet.
type openInput struct {
	sequence uint64 // stream sequence
	settled  bool
}

// verdict is the result of take for a delivery.
type verdict uint8

// The verdicts.
const (
	newInput   verdict = iota // the input is new and must be processed
	readInput                 // the input was read from the stream before the delivery arrived
	knownInput                // the input is in flight or settled, and the server has redelivered it
	gap                       // earlier deliveries are missing; add their inputs, call caughtUp, and take the delivery again
)

func (v verdict) String() string { return [...]string{"new", "read", "known", "gap"}[v] }

// take records a delivery with the given consumer sequence (number) and stream sequence. If it returns gap, it records
// nothing.
func (f *floor) take(number, sequence uint64) verdict {
	switch next := number == f.delivered+1; {
	case sequence <= f.highest && number <= f.delivered:
		return readInput
	case sequence <= f.highest:
		if next {
			f.delivered = number
		}
		return knownInput
	case !next:
		return gap
	}
	f.delivered = number
	f.add(sequence)
	return newInput
}

// add records that an input was taken. The input must be the partition's first after highest.
func (f *floor) add(sequence uint64) {
	f.highest = sequence
	f.inputs = append(f.inputs, openInput{sequence: sequence})
}

// caughtUp records that the inputs of all deliveries up to the consumer sequence number have been taken.
func (f *floor) caughtUp(number uint64) { f.delivered = number }

// settle records that the result or the dead letter of an input is stored. It panics if the input was never taken or is
// already acknowledged, because the next acknowledgement could then cover too much.
func (f *floor) settle(sequence uint64) {
	at := f.find(sequence)
	if at < 0 {
		panic("partition: an input is settled that is not open")
	}
	f.inputs[at].settled = true
}

// find returns the index in f.inputs of the input with the given stream sequence, or -1.
func (f *floor) find(sequence uint64) int {
	low, high := f.first, len(f.inputs)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if f.inputs[middle].sequence < sequence {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(f.inputs) || f.inputs[low].sequence != sequence {
		return -1
	}
	return low
}

// acknowledge removes the inputs that one acknowledgement may cover now, and returns the stream sequence that the
// acknowledgement must name. It reports false if there are no such inputs.
func (f *floor) acknowledge() (sequence uint64, ok bool) {
	for f.first < len(f.inputs) && f.inputs[f.first].settled {
		sequence, ok = f.inputs[f.first].sequence, true
		f.first++
	}
	if f.first > len(f.inputs)/2 {
		f.inputs = f.inputs[:copy(f.inputs, f.inputs[f.first:])]
		f.first = 0
	}
	return sequence, ok
}

// open returns the number of inputs that were taken and are not acknowledged.
func (f *floor) open() int { return len(f.inputs) - f.first }
