package ingest

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// settleInOrder publishes the results of one batch after another, in the order in which their payloads are in the stream, and
// acknowledges each batch at once. It ends when no more come. After a failure it publishes nothing more: the next lease gets
// the rest again.
func (l *lease) settleInOrder(drainCtx context.Context) {
	defer l.batches.stopPublishing()
	broken := false
	for g := range l.order {
		select {
		case <-g.Completed:
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
		over := g.Finished
		l.batches.recycle(g)
		if over != nil {
			close(over)
		}
	}
}

// settleGroup stores the results of a batch and acknowledges its inputs.
func (l *lease) settleGroup(drainCtx context.Context, g *inflight.Batch) error {
	failed := g.Err != nil
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
	g.Record.Publish = streams.Span{Start: start, End: published}
	g.Record.Settle = streams.Span{Start: published, End: l.batches.now()}
	if !failed { // otherwise that was reported, with the failure
		l.batches.report(g)
	}
	return err
}

// settle notes that the results of deliveries are stored.
func (l *lease) settle(stored []*inflight.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range stored {
		l.floor.Settle(d.Sequence)
	}
}

// settled notes that the result or the dead letter of a group's i-th input is stored.
func (l *lease) settled(g *inflight.Batch, i int) {
	g.Settle(i)
	l.mu.Lock()
	l.floor.Settle(g.Items[i].Sequence)
	l.mu.Unlock()
}

// acknowledge acknowledges everything up to the first input that is not settled, with one message. g is the group that was
// settled last; nil after a dead letter.
func (l *lease) acknowledge(ctx context.Context, g *inflight.Batch) error {
	l.mu.Lock()
	sequence, ok := l.floor.Acknowledge()
	if !ok {
		l.mu.Unlock()
		return nil
	}
	var msg pull.Receipt
	if receipt, ok := l.receipts[sequence]; ok {
		msg = receipt
	} else if i := g.Find(sequence); i >= 0 {
		msg = g.Items[i].Msg
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
	if time.Since(l.checkedAt) < topology.PinnedFor {
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

func (l *lease) sendAck(ctx context.Context, msg pull.Receipt, sequence uint64) {
	if err := l.host.acknowledge(ctx, msg); err != nil {
		l.log.Warn("could not acknowledge; what was to be is delivered again, and its results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}
