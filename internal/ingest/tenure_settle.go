package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// settleInOrder publishes the results of one batch after another, in the order in which their payloads are in the
// stream, and acknowledges each batch at once. It ends when no more come. After a failure nothing more is published: what
// is behind comes again in the next tenure.
func (t *tenure) settleInOrder(hard context.Context) {
	s := &settler{w: t.w, pipe: t.pipe, desk: &desk{}}
	defer s.forget(t.w.pool)
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
			s.tidy()
			s.fit(t.w.pool)
		}
		over := g.Finished
		t.w.pool.Recycle(g)
		if over != nil {
			close(over)
		}
	}
}

// settleGroup stores the results of a batch and acknowledges its inputs.
func (t *tenure) settleGroup(hard context.Context, s *settler, g *inflight.Batch) error {
	failed := g.Err != nil
	if failed {
		if err := t.rescue(hard, g); err != nil {
			return err
		}
	}
	start := t.pipe.Now()
	if err := t.publishGroup(hard, s, g); err != nil {
		return err
	}
	published := t.pipe.Now()
	err := t.acknowledge(hard, g)
	g.Record.Stages[streams.Publish] = streams.Span{Start: start, End: published}
	g.Record.Stages[streams.Settle] = streams.Span{Start: published, End: t.pipe.Now()}
	if !failed { // otherwise that was reported, with the failure
		t.pipe.Report(&g.Record)
		t.w.tell(g, &g.Record)
	}
	return err
}

// publishGroup stores the results of a batch; one that never can be stored makes a dead letter of its payload. It tries
// until all are, or hard ends.
func (t *tenure) publishGroup(hard context.Context, s *settler, g *inflight.Batch) error {
	s.left = append(s.left[:0], g.Unsettled()...)
	if len(s.left) == 0 {
		return nil // a batch of payloads that were all given up
	}
	for attempt := 1; ; attempt++ {
		settle := func() error { return t.settleStored(hard, s, g) }
		err := s.settleKnown(hard, g, settle)
		if err == nil && len(s.left) > 0 {
			err = s.publishOnce(hard, g, attempt)
			if err := settle(); err != nil {
				return err
			}
		}
		switch {
		case len(s.left) == 0:
			return nil
		case hard.Err() != nil:
			return hard.Err()
		case t.w.links.closed():
			return jetstream.ErrConnectionClosed
		}
		t.w.publishFailed(err, len(s.left), attempt)
		if !t.w.awaitRetry(hard, attempt) {
			return hard.Err()
		}
	}
}

// settleStored notes which results are stored, and keeps the rest in s.left.
func (t *tenure) settleStored(hard context.Context, s *settler, g *inflight.Batch) error {
	now := time.Now()
	headroom := g.Headroom(now, t.w.ackWait)
	rest := s.left[:0]
	for n, i := range s.left {
		d := &g.Items[i]
		switch a := s.answers[n]; {
		case a.Err == nil:
			t.settled(g, i)
			t.w.hasResult(d)
			t.w.observer.Settled(outcome(a), len(d.Msg.Data()), len(g.Result(i)), now.Sub(d.Received), headroom)
		case store.Unstorable(a.Err):
			cause := fmt.Errorf("its result cannot be stored: %w", a.Err)
			if err := t.w.storeDeadLetter(hard, d, TooLarge, cause); err != nil {
				t.w.sayNotBuried(d, TooLarge, err)
				return err
			}
			t.w.sayBuried(d, TooLarge, cause)
			t.settled(g, i)
		default:
			rest = append(rest, i)
		}
	}
	s.left = rest
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
