package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/partition"
	"millrace/internal/ingest/pull"
	"millrace/internal/streams"
)

// Why a tenure ends and another has to begin.
var (
	errGap        = errors.New("there are deliveries that went elsewhere or got lost")
	errPinLost    = errors.New("the server gave the partition to another worker meanwhile")
	errOverridden = errors.New("an acknowledgement of an earlier tenure came late, and the server takes none below it")
)

// tenure is one stretch of time in which this worker has a partition to itself. It begins by making sure that the
// server delivers from the acknowledgement floor on, in order, and ends with everything that was taken either
// acknowledged, or left to the next tenure, which gets it again.
type tenure struct {
	e         *exclusive
	w         *Worker
	partition int
	nc        *nats.Conn // where its inputs come
	pipe      *streams.Pipeline
	log       *slog.Logger

	consumer jetstream.Consumer
	begun    bool             // the server has chosen this worker, and the consumer is marked
	looked   time.Time        // when the consumer was last asked how it is
	pin      string           // the server's name for this worker's turn; empty until a delivery said it
	order    chan *group      // submitted batches, in order
	failed   chan error       // why the tenure must end; room for one
	dead     map[uint64]inbox // dead letters that may be what the next acknowledgement names, by sequence

	blame    Reason          // why a payload that is given up is given up
	out      chan<- delivery // to who fills batches
	fault    Reason          // why this tenure failed, if it did because of a payload; empty otherwise
	suspects int             // how many payloads more are suspects. Guarded by mu, as is what follows

	mu         sync.Mutex
	floor      partition.Floor
	caution    partition.Caution
	taken      uint64        // number of the last delivery
	ackedUpTo  uint64        // stream sequence
	lastAcked  jetstream.Msg // what the last acknowledgement named; nil before the first
	progressed bool          // something was acknowledged
}

// inbox is a delivery that has been settled by itself.
type inbox struct{ msg jetstream.Msg }

// run holds the tenure until ctx is done, or it cannot go on; then it returns why. It waits, until hard ends, for what is
// in hand.
func (t *tenure) run(ctx, hard context.Context) error {
	t.failed, t.dead = make(chan error, 1), map[uint64]inbox{}
	var err error
	if t.consumer, err = t.e.js.Consumer(ctx, t.w.opts.Stream, partitionConsumer(t.w.opts.Consumer, t.partition)); err != nil {
		return err
	}
	t.order = make(chan *group, cap(t.w.freeGroups))
	out := make(chan delivery, handOver)
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case err := <-t.failed:
			stop(err)
		case <-reading.Done():
		}
	})
	working.Go(func() {
		defer close(t.order)
		if err := t.fillBatches(reading, out); err != nil {
			t.fail(err)
		}
	})
	working.Go(func() { t.settleInOrder(hard) })
	err = t.read(reading, hard, out)
	stop(err)
	working.Wait()
	t.end(hard)
	return cmp.Or(context.Cause(reading), err)
}

// fail ends the tenure; the first reason counts.
func (t *tenure) fail(err error) {
	select {
	case t.failed <- err:
	default:
	}
}

// pull asks for the partition's messages.
func (t *tenure) pull() (*pull.Pull, error) {
	limit := newPullLimit(t.w.nc.MaxPayload(), t.consumer.CachedInfo().Config)
	return pull.Open(t.nc, pull.Request{
		Stream: t.w.opts.Stream, Consumer: t.consumer.CachedInfo().Name, Group: priorityGroup,
		Messages: limit.messages, Bytes: limit.bytes, Expires: pullFor, Heartbeat: pullFor / 2, Idle: pinnedFor,
	})
}

// read takes deliveries and hands them on, until ctx is done or the tenure cannot go on. It closes out.
func (t *tenure) read(ctx, hard context.Context, out chan<- delivery) error {
	defer close(out)
	messages, err := t.pull()
	if err != nil {
		return err
	}
	defer messages.Stop()
	keeping, over := context.WithCancel(ctx)
	defer over()
	go t.keepTurn(keeping, messages)
	t.out = out
	stale := false // what comes may have been delivered before the consumer started again
	var since time.Time
	for {
		d, err := t.next(ctx, hard, messages)
		if err != nil {
			return err
		}
		if !t.begun {
			if err := t.begin(ctx, &d); err != nil {
				return err
			}
			stale, since = d.number != 1, time.Now()
		}
		if stale = stale && d.number > fillMost; stale {
			if time.Since(since) > pinnedFor {
				return errGap // the first delivery of the new start got lost
			}
			continue
		}
		if err := t.take(ctx, hard, d); err != nil {
			return err
		}
	}
}

// keepTurn has the server leave the partition to this worker while the device is behind and nothing is pulled. A worker that
// hears nothing does not: what it has in hand comes to no end, and another is to have the partition.
func (t *tenure) keepTurn(ctx context.Context, messages *pull.Pull) {
	for sleep(ctx, pullFor) {
		heard, cancel := context.WithTimeout(ctx, pullFor)
		err := t.nc.FlushWithContext(heard)
		cancel()
		if err == nil {
			err = messages.Keep()
		}
		if err != nil {
			t.log.Debug("could not keep the partition", "error", err)
		}
	}
}

// next waits for a delivery. While there is none it looks now and then whether the consumer is as it should be.
func (t *tenure) next(ctx, hard context.Context, messages *pull.Pull) (delivery, error) {
	for {
		msg, err := messages.Next(ctx)
		switch {
		case err == nil:
			d, err := newDelivery(msg, time.Now())
			if err != nil {
				return delivery{}, err
			}
			d.subject = partitionSubject(msg.Subject())
			return d, nil
		case ctx.Err() != nil:
			return delivery{}, ctx.Err()
		case errors.Is(err, pull.ErrIdle):
			if err := t.lookAfter(ctx, hard); err != nil {
				return delivery{}, err
			}
		default:
			return delivery{}, err
		}
	}
}

// begin looks at the consumer when the server has chosen this worker, of which d is the first sign. Where that is not the
// first delivery that the consumer ever made, somebody may have others: then it has to start again from its
// acknowledgement floor, and numbers from 1 again.
func (t *tenure) begin(ctx context.Context, d *delivery) error {
	info, err := t.consumer.Info(ctx)
	if err != nil {
		return err
	}
	if err := t.takeOver(ctx, info); err != nil {
		return err
	}
	t.e.members.has(t.partition, true)
	t.begun = true
	t.pin = d.msg.Headers().Get(pinHeader)
	t.log.Debug("has the partition", "floor", info.AckFloor.Stream, "pin", t.pin, "first", d.number)
	if d.number == 1 {
		return nil
	}
	if _, err := t.e.js.ResetConsumer(ctx, t.w.opts.Stream, info.Name); err != nil {
		return fmt.Errorf("have the consumer start again from its floor (nats-server 2.14 or later): %w", err)
	}
	return nil
}

// take enters a delivery and hands it on, if it is to be processed.
func (t *tenure) take(ctx, hard context.Context, d delivery) error {
	if err := t.checkPin(&d); err != nil {
		return err
	}
	t.w.observer.Pending(d.pending)
	verdict, first := t.enter(&d)
	if verdict == partition.Gap {
		if err := t.fill(ctx, hard, d.sequence); err != nil {
			return err
		}
		verdict, first = t.enter(&d)
	}
	switch verdict {
	case partition.New:
		return t.hand(ctx, hard, d, first)
	case partition.Known:
		t.w.observer.Redelivered()
		return t.acknowledgeAgain(ctx, hard, d.sequence)
	}
	return errGap
}

// checkPin says whether a delivery was for this tenure. Where its headers cannot be read there is no pin to see, and the stream
// has to tell whether anything is missing before it.
func (t *tenure) checkPin(d *delivery) error {
	pin := d.msg.Headers().Get(pinHeader)
	switch {
	case pin == "":
		t.mu.Lock()
		t.floor.Doubt()
		t.mu.Unlock()
	case t.pin == "":
		t.pin = pin
	case pin != t.pin:
		return errPinLost
	}
	return nil
}

// enter has the floor judge a delivery, and says whether it is of the first input above the acknowledgement floor.
func (t *tenure) enter(d *delivery) (v partition.Verdict, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first = t.floor.Highest() == t.caution.Floor
	if v = t.floor.Take(d.number, d.sequence, d.deliveries > 1); v != partition.Gap {
		t.taken = d.number
	}
	return v, first
}

// hand gives a new delivery to who fills batches, if it is to be processed.
func (t *tenure) hand(ctx, hard context.Context, d delivery, first bool) error {
	switch {
	case first && t.caution.GiveUp():
		return t.bury(hard, d, t.blame, errors.New("it was alone on the device, and that failed each time"))
	case len(d.msg.Data()) > t.w.maxBytes:
		return t.bury(hard, d, TooLarge, tooLarge(len(d.msg.Data()), t.w.maxBytes))
	}
	select {
	case t.out <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bury stores a dead letter before anything behind it is taken. One that cannot be stored ends the tenure: nothing behind
// it may be acknowledged.
func (t *tenure) bury(hard context.Context, d delivery, why Reason, cause error) error {
	if err := t.w.storeDeadLetter(hard, &d, why, cause); err != nil {
		t.w.sayNotBuried(&d, why, err)
		return err
	}
	t.w.sayBuried(&d, why, cause)
	t.mu.Lock()
	alone := t.floor.Open() == 1
	t.floor.Settle(d.sequence)
	t.dead[d.sequence] = inbox{d.msg}
	t.mu.Unlock()
	if !alone {
		return nil // it is acknowledged with what is before it
	}
	return t.acknowledge(hard, nil)
}

// fillBatches packs and submits what comes until there is no more. With reason for caution there is one small batch at a
// time, and the next only when it has been acknowledged.
func (t *tenure) fillBatches(ctx context.Context, in <-chan delivery) error {
	f := newBatcher(t.pipe, in, t.w.opts.Linger)
	for {
		first, ok := f.first()
		if !ok || ctx.Err() != nil {
			return nil
		}
		g, err := t.w.reserve(ctx, t.pipe)
		if err != nil {
			return nil // the end of the tenure; what was read and not submitted comes again
		}
		b, err := t.pipe.Take()
		if err != nil {
			t.w.freeGroups <- g
			return err
		}
		careful := t.careful(f)
		t.w.inHand.Add(1)
		f.add(b, g, first)
		why := f.fill(b, g)
		if careful {
			err = t.submitCarefully(ctx, b, g, why)
		} else {
			err = t.submitAmongOthers(b, g, why)
		}
		if err != nil {
			return err
		}
	}
}

// careful bounds the next batch, and says whether there is reason for it.
func (t *tenure) careful(f *batcher) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.caution.Due(t.ackedUpTo)
	f.most = 0
	if due {
		f.most = t.caution.BatchPayloads(t.pipe.BatchPayloads())
	}
	return due
}
