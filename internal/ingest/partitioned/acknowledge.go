package partitioned

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/partitioned/partition"
	"millrace/internal/ingest/pull"
)

// acknowledgements tracks the inputs that a lease has taken and which of them are settled. It acknowledges everything before the
// first unsettled input with one message. Its methods may be called by several goroutines.
type acknowledgements struct {
	host leaseHost
	log  *slog.Logger

	mu         sync.Mutex
	floor      partition.Floor
	taken      uint64                  // consumer sequence of the last delivery
	upTo       uint64                  // stream sequence up to which everything is acknowledged
	last       pull.Receipt            // receipt of the last acknowledgement; nil before the first
	receipts   map[uint64]pull.Receipt // receipts of inputs with dead letters, for the next acknowledgement
	progressed bool                    // whether anything was acknowledged
}

func newAcknowledgements(host leaseHost, log *slog.Logger) *acknowledgements {
	return &acknowledgements{host: host, log: log, receipts: map[uint64]pull.Receipt{}}
}

// begin starts from the consumer's acknowledgement floor.
func (a *acknowledgements) begin(floor uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.upTo, a.floor = floor, partition.NewFloor(floor)
}

// take records a delivery in the floor and returns its verdict. behind is the highest sequence that was taken before.
func (a *acknowledgements) take(d *inflight.Delivery) (v partition.Verdict, behind uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	behind = a.floor.Highest()
	if v = a.floor.Take(d.ConsumerSequence, d.Sequence, d.NumDelivered > 1); v != partition.Gap {
		a.taken = d.ConsumerSequence
	}
	return v, behind
}

// reached returns the highest stream sequence that the lease has taken, and the consumer sequence of its last delivery. Both are
// 0 before the lease has begun.
func (a *acknowledgements) reached() (sequence, number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.floor.Highest(), a.taken
}

// fill records the inputs that were read from the stream: all inputs between the last one taken and sequence.
func (a *acknowledgements) fill(missing []uint64, sequence uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.floor.Fill(missing, sequence)
}

// skipTo records that every delivery up to that consumer sequence has been taken, or read from the stream.
func (a *acknowledgements) skipTo(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = number
}

// acknowledged returns the stream sequence up to which everything is acknowledged.
func (a *acknowledgements) acknowledged() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.upTo
}

// latest returns the last acknowledgement (nil before the first), its stream sequence, and the number of open inputs after it.
func (a *acknowledgements) latest() (msg pull.Receipt, sequence uint64, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.upTo, a.floor.Open()
}

// settle records that the results of deliveries are stored.
func (a *acknowledgements) settle(stored []*inflight.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range stored {
		a.floor.Settle(d.Sequence)
	}
}

// settled records that the result or the dead letter of a group's i-th input is stored.
func (a *acknowledgements) settled(g *inflight.Batch, i int) {
	g.Settle(i)
	a.mu.Lock()
	a.floor.Settle(g.Items[i].Sequence)
	a.mu.Unlock()
}

// settledAlone records that the dead letter of an input outside any batch is stored. It reports whether no other input is open.
// If others are open, the input is acknowledged together with those before it.
func (a *acknowledgements) settledAlone(d *inflight.Delivery) (alone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alone = a.floor.Open() == 1
	a.floor.Settle(d.Sequence)
	a.receipts[d.Sequence] = d.Msg.Receipt()
	a.host.keepReceipts(1)
	return alone
}

// dropReceipts gives back the memory of receipts when the lease ends.
func (a *acknowledgements) dropReceipts() { a.host.keepReceipts(-len(a.receipts)) }

// acknowledge acknowledges everything before the first unsettled input with one message. g is the group that was settled last, or
// nil after a dead letter.
func (a *acknowledgements) acknowledge(ctx context.Context, g *inflight.Batch) error {
	a.mu.Lock()
	sequence, ok := a.floor.Acknowledge()
	if !ok {
		a.mu.Unlock()
		return nil
	}
	var msg pull.Receipt
	if receipt, ok := a.receipts[sequence]; ok {
		msg = receipt
	} else if i := g.Find(sequence); i >= 0 {
		msg = g.Items[i].Msg
	}
	for s := range a.receipts {
		if s <= sequence {
			delete(a.receipts, s)
			a.host.keepReceipts(-1)
		}
	}
	a.upTo, a.progressed, a.last = sequence, true, msg
	a.mu.Unlock()
	if msg == nil {
		return fmt.Errorf("nothing in hand has sequence %d, which is to be acknowledged", sequence) // a bug; the next lease recovers from it
	}
	a.send(ctx, msg, sequence)
	return nil
}

// send sends an acknowledgement. If that fails, its inputs are redelivered and their results are dropped as duplicates.
func (a *acknowledgements) send(ctx context.Context, msg pull.Receipt, sequence uint64) {
	if err := a.host.acknowledge(ctx, msg); err != nil {
		a.log.Warn("could not acknowledge; what was to be is delivered again, and its results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}
