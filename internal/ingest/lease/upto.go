package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
)

// upTo tracks a lease's inputs until they are acknowledged. One message acknowledges all inputs before the first one that isn't done. It is
// the acknowledger of exclusive delivery. Methods are safe for concurrent use, except for those of the reader.
type upTo struct {
	*inputs
	ordered  bool      // whether a dead letter must wait for all earlier inputs, because a commit marker covers them; only the reader uses it
	resentAt time.Time // time when again last repeated an acknowledgement; only the reader uses it

	mu         sync.Mutex
	floor      floor
	behind     uint64                   // stream sequence of the input before the last one, or of the lease's start
	number     uint64                   // consumer sequence of the lease's last input; initially that of the consumer's acknowledgement floor
	upTo       uint64                   // acknowledgement floor, a stream sequence
	last       pull.AckToken            // token of the last acknowledgement; nil before the first
	receipts   map[uint64]pull.AckToken // tokens of inputs that are done and in no batch, by stream sequence
	progressed bool                     // whether anything was acknowledged
	moved      chan struct{}            // signalled when inputs are acknowledged
}

func newUpTo(i *inputs) *upTo {
	return &upTo{inputs: i, receipts: map[uint64]pull.AckToken{}, moved: make(chan struct{}, 1)}
}

// begin sets the lease's start to the consumer's acknowledgement floor.
func (u *upTo) begin(floor jetstream.SequenceInfo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.upTo, u.number, u.floor = floor.Stream, floor.Consumer, newFloor(floor.Stream)
}

// take implements acknowledger.
func (u *upTo) take(d *inflight.Delivery) (v verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	behind := u.floor.highest
	if v = u.floor.take(d.ConsumerSequence, d.Sequence); v == newInput {
		u.behind, u.number = behind, d.ConsumerSequence
	}
	return v
}

// takeStored records an input that was read from the stream. It returns the consumer sequence for acknowledging the
// input. The server accepts an acknowledgement only if its consumer sequence is higher than the previous one. number
// therefore rises, up to limit, the consumer sequence of the last delivery.
func (u *upTo) takeStored(sequence, limit uint64) (number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.behind = u.floor.highest
	u.floor.add(sequence)
	u.number = min(u.number+1, limit)
	return u.number
}

// lastBehind returns the stream sequence of the input before the last one that was taken, or that of the lease's start.
func (u *upTo) lastBehind() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.behind
}

// caughtUp records that the lease has all inputs up to the given delivery.
func (u *upTo) caughtUp(delivered jetstream.SequenceInfo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.floor.caughtUp(delivered.Consumer)
	u.number = delivered.Consumer
}

// reached returns the stream sequence of the lease's last input, and the consumer sequence up to which no delivery is
// missing. sequence is 0 before begin, and number is 0 before the first input.
func (u *upTo) reached() (sequence, number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.floor.highest, u.floor.delivered
}

// acknowledged returns the acknowledgement floor as a stream sequence.
func (u *upTo) acknowledged() uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.upTo
}

// latest returns the token of the last acknowledgement (nil before the first), its stream sequence, and the number of
// unacknowledged inputs.
func (u *upTo) latest() (msg pull.AckToken, sequence uint64, open int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last, u.upTo, u.floor.open()
}

// Stored implements results.Sink.
func (u *upTo) Stored(_ context.Context, stored []*inflight.Delivery) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, d := range stored {
		u.floor.done(d.Sequence)
	}
}

// DeadLettered implements results.Sink.
func (u *upTo) DeadLettered(d *inflight.Delivery, _ results.Reason) {
	u.mu.Lock()
	u.floor.done(d.Sequence)
	u.mu.Unlock()
}

// Incomplete implements results.Sink. Its error ends the lease, and the server redelivers the input.
func (u *upTo) Incomplete(_ *inflight.Batch, _ int, cause error) error { return cause }

// leave implements acknowledger. The input is left to the next lease.
func (u *upTo) leave(d inflight.Delivery) { u.o.Pool.Release(&d) }

// done implements acknowledger. If other inputs are unacknowledged, the input is acknowledged together with those before it.
func (u *upTo) done(ctx context.Context, d *inflight.Delivery) error {
	u.mu.Lock()
	alone := u.floor.open() == 1
	u.floor.done(d.Sequence)
	u.receipts[d.Sequence] = d.Msg.AckToken()
	u.o.Pool.KeepReceipts(1)
	u.mu.Unlock()
	if !alone {
		return nil
	}
	return u.flush(ctx, nil)
}

// giveUp implements acknowledger. With commit markers, it first waits until all earlier inputs are acknowledged.
func (u *upTo) giveUp(ctx, drainCtx context.Context, d inflight.Delivery, why results.Reason, cause error) error {
	defer u.o.Pool.Release(&d)
	if u.ordered && !u.awaitFirst(ctx) {
		return ctx.Err()
	}
	if err := u.store.PublishDeadLetter(drainCtx, &d, why, cause); err != nil {
		return err // no later input may be acknowledged
	}
	u.store.ReportDeadLetter(&d, why, cause)
	return u.done(drainCtx, &d)
}

// awaitFirst waits until at most the last input is unacknowledged. It returns false if ctx is done first.
func (u *upTo) awaitFirst(ctx context.Context) bool {
	for {
		u.mu.Lock()
		open := u.floor.open()
		u.mu.Unlock()
		if open <= 1 {
			return true
		}
		select {
		case <-u.moved:
		case <-ctx.Done():
			return false
		}
	}
}

// dropReceipts releases the memory of receipts when the lease ends.
func (u *upTo) dropReceipts() { u.o.Pool.KeepReceipts(-len(u.receipts)) }

// flush implements acknowledger. It sends one message that acknowledges all inputs before the first one that isn't done. g is the batch
// whose results were stored last, or nil for an input outside any batch.
func (u *upTo) flush(ctx context.Context, g *inflight.Batch) error {
	u.mu.Lock()
	sequence, ok := u.floor.acknowledge()
	if !ok {
		u.mu.Unlock()
		return nil
	}
	var msg pull.AckToken
	if receipt, ok := u.receipts[sequence]; ok {
		msg = receipt
	} else if i := g.Find(sequence); i >= 0 {
		msg = g.Items[i].Msg
	}
	for s := range u.receipts {
		if s <= sequence {
			delete(u.receipts, s)
			u.o.Pool.KeepReceipts(-1)
		}
	}
	u.upTo, u.progressed, u.last = sequence, true, msg
	u.mu.Unlock()
	select {
	case u.moved <- struct{}{}:
	default:
	}
	if msg == nil {
		// This is a bug. The next lease recovers from it.
		return fmt.Errorf("no open input has sequence %d, which the next acknowledgement must name", sequence)
	}
	u.send(ctx, msg, sequence)
	return nil
}

// again implements acknowledger. It repeats the last acknowledgement if that covered the input. The last acknowledgement may have been lost
// or ignored, and the next one may be late. For the consumer sequence, see repeatLast.
func (u *upTo) again(ctx context.Context, d *inflight.Delivery) {
	token, covered, open := u.latest()
	if token == nil || d.Sequence > covered || time.Since(u.resentAt) < resendAfter {
		return
	}
	u.resentAt = time.Now()
	if _, taken := u.reached(); open == 0 {
		token = u.server.receipt(covered, taken)
	}
	u.send(ctx, token, covered)
}

// resendAfter is the minimum time between two repeated acknowledgements. The server redelivers all inputs of a lost
// acknowledgement together, so one repetition is enough.
const resendAfter = 100 * time.Millisecond

// repeatLast repeats the last acknowledgement if it covers all deliveries and the server hasn't processed it. An
// earlier owner may have acknowledged a redelivered input with a higher consumer sequence. The server then ignores
// acknowledgements with lower ones, even if they cover more inputs. The repeated acknowledgement therefore names the
// consumer's last delivery. info is the consumer's state.
func (u *upTo) repeatLast(ctx context.Context, info *jetstream.ConsumerInfo) {
	token, sequence, open := u.latest()
	if token == nil || open > 0 || info.AckFloor.Stream >= sequence {
		return
	}
	u.send(ctx, u.server.receipt(sequence, info.Delivered.Consumer), sequence)
}

// floor tracks the inputs that a lease has taken, and the inputs that its next acknowledgement may cover. A lease takes
// an input by receiving its delivery or by reading the input from the stream.
//
// One acknowledgement covers all earlier inputs of the partition, even inputs that another worker received. The lease
// must therefore take and finish all of them. It first reads the earlier deliveries from the stream. Under one pin, the
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
	done     bool
}

// take records a delivery with the given consumer sequence (number) and stream sequence. If it returns gap, it records
// nothing. The caller then adds the inputs of the missing deliveries, calls caughtUp, and takes the delivery again.
func (f *floor) take(number, sequence uint64) verdict {
	switch next := number == f.delivered+1; {
	case sequence <= f.highest && number <= f.delivered:
		return heldInput
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

// done records that the result or the dead letter of an input is stored. It panics if the input was never taken or is
// already acknowledged, because the next acknowledgement could then cover too much.
func (f *floor) done(sequence uint64) {
	at := f.find(sequence)
	if at < 0 {
		panic("partition: an input is done that is not open")
	}
	f.inputs[at].done = true
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
	for f.first < len(f.inputs) && f.inputs[f.first].done {
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
