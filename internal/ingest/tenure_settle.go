package ingest

import (
	"context"
	"fmt"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// settleInOrder publishes the results of one batch after another, in the order in which their payloads are in the
// stream, and acknowledges each batch at once. It ends when no more come. After a failure nothing more is published: what
// is behind comes again in the next tenure.
func (t *tenure) settleInOrder(hard context.Context) {
	s := &results.Buffers{}
	defer s.Free(t.w.pool)
	broken := false
	for g := range t.order {
		select {
		case <-g.Completed:
		case <-hard.Done():
			broken = true // its batch is still on the device, and the group with it
			continue
		}
		if !broken {
			if err := t.settleGroup(hard, s, g); err != nil {
				t.fail(err)
				broken = true
			}
			s.Tidy(t.w.pool)
		}
		over := g.Finished
		t.w.pool.Recycle(g)
		if over != nil {
			close(over)
		}
	}
}

// settleGroup stores the results of a batch and acknowledges its inputs.
func (t *tenure) settleGroup(hard context.Context, s *results.Buffers, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := t.rescue(hard, g); err != nil {
			return err
		}
	}
	start := t.pipe.Now()
	if err := t.w.results.Settle(hard, t.pipe, g, s, t); err != nil {
		return err
	}
	published := t.pipe.Now()
	err := t.acknowledge(hard, g)
	g.Record.Stages[streams.Publish] = streams.Span{Start: start, End: published}
	g.Record.Stages[streams.Settle] = streams.Span{Start: published, End: t.pipe.Now()}
	if !failed { // otherwise that was reported, with the failure
		t.pipe.Report(&g.Record)
		g.Report(t.w.opts.Batches, &g.Record)
	}
	return err
}

// Stored implements results.Sink.
func (t *tenure) Stored(_ context.Context, stored []*inflight.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range stored {
		t.floor.Settle(d.Sequence)
	}
}

// Undeliverable implements results.Sink: the dead letter is stored before anything behind it is acknowledged.
func (t *tenure) Undeliverable(ctx context.Context, g *inflight.Batch, i int, cause error) error {
	return t.publishDeadLetter(ctx, g, i, results.TooLarge, cause)
}

// publishDeadLetter stores the dead letter of the i-th delivery of a batch.
func (t *tenure) publishDeadLetter(ctx context.Context, g *inflight.Batch, i int, why results.Reason, cause error) error {
	d := &g.Items[i]
	if err := t.w.results.PublishDeadLetter(ctx, d, why, cause); err != nil {
		return err
	}
	t.w.results.ReportDeadLetter(d, why, cause)
	t.settled(g, i)
	return nil
}

func (t *tenure) settled(g *inflight.Batch, i int) {
	g.Settle(i)
	t.mu.Lock()
	t.floor.Settle(g.Items[i].Sequence)
	t.mu.Unlock()
}

// acknowledge acknowledges everything up to the first input that is not settled, with one message. g is the group that
// was settled last, nil where a dead letter was.
func (t *tenure) acknowledge(ctx context.Context, g *inflight.Batch) error {
	t.mu.Lock()
	sequence, ok := t.floor.Acknowledge()
	if !ok {
		t.mu.Unlock()
		return nil
	}
	var msg inflight.Receipt
	if letter, ok := t.dead[sequence]; ok {
		msg = letter
	} else if i := g.Find(sequence); i >= 0 {
		msg = g.Items[i].Msg
	}
	for s := range t.dead {
		if s <= sequence {
			delete(t.dead, s)
			t.w.pool.ReleaseReceipts(1)
		}
	}
	t.ackedUpTo, t.progressed, t.lastAcked = sequence, true, msg
	t.mu.Unlock()
	if msg == nil {
		return fmt.Errorf("nothing in hand has sequence %d, which is to be acknowledged", sequence) // a bug; the next tenure mends it
	}
	t.sendAck(ctx, msg, sequence)
	return nil
}

// acknowledgeAgain repeats the last acknowledgement for an input that it covered and that came again all the same: the
// acknowledgement got lost, and nothing else would ever be said about that input. Or the server does not take it, and it
// is time to look why.
func (t *tenure) acknowledgeAgain(ctx, hard context.Context, sequence uint64) error {
	t.mu.Lock()
	msg, covered := t.lastAcked, sequence <= t.ackedUpTo
	t.mu.Unlock()
	if msg == nil || !covered || time.Since(t.again) < sayAgain {
		return nil
	}
	t.again = time.Now()
	t.sendAck(hard, msg, sequence)
	if time.Since(t.looked) < topology.PinnedFor {
		return nil
	}
	info, err := t.look(ctx)
	if err != nil {
		return err
	}
	return t.overridden(info)
}

// sayAgain is how long one repeated acknowledgement does for all inputs that it covers: they come again together.
const sayAgain = 100 * time.Millisecond

func (t *tenure) sendAck(ctx context.Context, msg inflight.Receipt, sequence uint64) {
	if err := t.w.acknowledgeAll(ctx, msg); err != nil {
		t.log.Warn("could not acknowledge; what was to be is delivered again, and its results are dropped as duplicates",
			"sequence", sequence, "error", err)
	}
}
