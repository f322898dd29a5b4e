package ingest

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/ingest/layout"
	"millrace/internal/streams"

	"github.com/nats-io/nats.go/jetstream"
)

// settleInOrder publishes the results of one batch after another, in the order in which their payloads are in the stream, and
// acknowledges each batch at once. It ends when no more come. After a failure it publishes nothing more: the next lease gets
// the rest again.
func (l *lease) settleInOrder(drainCtx context.Context) {
	defer l.batches.stopPublishing()
	broken := false
	for g := range l.order {
		select {
		case <-g.completed:
		case <-drainCtx.Done():
			broken = true // its batch is still on the device, and the group with it
			continue
		}
		if !broken {
			if err := l.settleGroup(drainCtx, g); err != nil {
				l.fail(err)
				broken = true
			}
		}
		over := g.over
		l.batches.recycle(g)
		if over != nil {
			close(over)
		}
	}
}

// settleGroup stores the results of a batch and acknowledges its inputs.
func (l *lease) settleGroup(drainCtx context.Context, g *group) error {
	failed := g.failed != nil
	if failed {
		if err := l.batches.rescue(drainCtx, g); err != nil {
			return err
		}
	}
	start := l.batches.now()
	if err := l.batches.publish(drainCtx, g); err != nil {
		return err
	}
	published := l.batches.now()
	err := l.acknowledge(drainCtx, g)
	g.record.Stages[streams.Publish] = streams.Span{Start: start, End: published}
	g.record.Stages[streams.Settle] = streams.Span{Start: published, End: l.batches.now()}
	if !failed { // otherwise that was reported, with the failure
		l.batches.report(g)
	}
	return err
}

// settled notes that the result or the dead letter of a group's i-th input is stored.
func (l *lease) settled(g *group, i int) {
	g.settle(i)
	l.mu.Lock()
	l.floor.Settle(g.items[i].sequence)
	l.mu.Unlock()
}

// acknowledge acknowledges everything up to the first input that is not settled, with one message. g is the group that was
// settled last; nil after a dead letter.
func (l *lease) acknowledge(ctx context.Context, g *group) error {
	l.mu.Lock()
	sequence, ok := l.floor.Acknowledge()
	if !ok {
		l.mu.Unlock()
		return nil
	}
	var msg jetstream.Msg
	if receipt, ok := l.receipts[sequence]; ok {
		msg = receipt
	} else if i := g.find(sequence); i >= 0 {
		msg = g.items[i].msg
	}
	for s := range l.receipts {
		if s <= sequence {
			delete(l.receipts, s)
			l.host.keepReceipts(-1)
		}
	}
	l.ackedUpTo, l.progressed, l.lastAcked = sequence, true, msg
	l.mu.Unlock()
	if msg == nil {
		return fmt.Errorf("nothing in hand has sequence %d, which is to be acknowledged", sequence) // a bug; the next lease mends it
	}
	l.sendAck(ctx, msg, sequence)
	return nil
}

// acknowledgeAgain repeats the last acknowledgement for an input that it covered and that was delivered again all the same.
// Either the acknowledgement got lost, and nothing else would ever cover that input. Or the server rejects it, and
// acknowledgeAgain checks why.
func (l *lease) acknowledgeAgain(ctx, drainCtx context.Context, sequence uint64) error {
	l.mu.Lock()
	msg, covered := l.lastAcked, sequence <= l.ackedUpTo
	l.mu.Unlock()
	if msg == nil || !covered || time.Since(l.resentAt) < resendAfter {
		return nil
	}
	l.resentAt = time.Now()
	l.sendAck(drainCtx, msg, sequence)
	if time.Since(l.checkedAt) < layout.PinnedFor {
		return nil
	}
	info, err := l.askConsumer(ctx)
	if err != nil {
		return err
	}
	return l.checkOverridden(info)
}

// resendAfter is how long one repeated acknowledgement does for all inputs that it covers: they are redelivered together.
const resendAfter = 100 * time.Millisecond

func (l *lease) sendAck(ctx context.Context, msg jetstream.Msg, sequence uint64) {
	if err := l.host.acknowledge(ctx, msg); err != nil {
		l.log.Warn("could not acknowledge; what was to be is delivered again, and its results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}

// find returns the index of the item with that stream sequence, -1 if there is none. Items of a partition are in order.
func (g *group) find(sequence uint64) int {
	if g == nil {
		return -1
	}
	for i := len(g.items) - 1; i >= 0 && g.items[i].sequence >= sequence; i-- {
		if g.items[i].sequence == sequence {
			return i
		}
	}
	return -1
}
