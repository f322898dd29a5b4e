package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// This file defines the states of batches. It starts, withdraws and completes submissions, and makes them wait for memory
// that other batches hold. A device notifies the pipeline of completions here, or the pipeline polls for them (poll.go).

// phase is the state of a batch buffer.
type phase uint8

const (
	free     phase = iota // not in use
	filling               // the caller appends payloads
	inFlight              // the device processes the batch
	done                  // the caller reads the results or the error
)

func (p phase) String() string {
	return [...]string{"free", "filling", "in flight", "done"}[p]
}

// next lists the permitted transitions. A filling batch becomes free if it is released without a submission. A batch in
// flight returns to filling if its submission failed. A completed batch returns to filling for another submission.
var next = [...][]phase{
	free:     {filling},
	filling:  {inFlight, free},
	inFlight: {done, filling},
	done:     {free, filling},
}

// route holds the stream for each stage of a batch. The streams may be the same.
type route struct{ in, kern, out device.Stream }

func (r route) drain() error {
	if r.in == nil {
		return nil
	}
	return errors.Join(r.in.Synchronize(), r.kern.Synchronize(), r.out.Synchronize())
}

// lane is a stream with one or two batches that use it in turn. If both are in flight, the second queues behind the
// first on the lane's own stream.
type lane struct {
	index   int
	own     route // the lane's own stream; zero in StreamPerStage
	batches []*Batch
	busy    atomic.Int32  // number of batches in flight
	idle    chan struct{} // receives a value when busy drops to 0

	submitting sync.Mutex  // keeps the work of two batches from interleaving on a stream
	lastOwn    predecessor // the latest batch submitted to the lane's own stream; guarded by submitting

	copiedOut time.Duration // latest known end of a copy out; guarded by Pipeline.mu
	ownFree   time.Duration // time at which the latest timed batch left the lane's own stream; guarded by Pipeline.mu
	// behind is the token of the latest batch for which readCopies found an unfinished copy in on the lane's own stream.
	// Later copies in on that stream are then not queried. Pipeline.timing guards it.
	behind uint64
}

// state returns inFlight if a batch of the lane is in flight, otherwise filling if one is filling, otherwise free.
func (l *lane) state() phase {
	s := free
	for _, b := range l.batches {
		switch b.phase {
		case inFlight:
			return inFlight
		case filling:
			s = filling
		}
	}
	return s
}

// move sets a batch's phase. No other function may set it. move panics at a transition that next doesn't permit: the
// pipeline has a bug, or a caller used a batch that it no longer owns. The caller holds Pipeline.mu.
func (l *lane) move(b *Batch, to phase) {
	for _, p := range next[b.phase] {
		if p != to {
			continue
		}
		if to == inFlight {
			l.busy.Add(1)
		}
		if b.phase == inFlight && l.busy.Add(-1) == 0 {
			select {
			case l.idle <- struct{}{}:
			default: // the channel already holds a signal
			}
		}
		b.phase = to
		return
	}
	panic(fmt.Sprintf("streams: batch %d on lane %d cannot go from %v to %v", b.record.Batch, l.index, b.phase, to))
}

// drain waits until no work uses the lane's buffers. On a device known to hang, it returns the error of Hung at once.
// If the device hangs during the call, drain might never return.
func (p *Pipeline) drain(l *lane) error {
	if err := p.Hung(); err != nil {
		return err
	}
	return errors.Join(l.own.drain(), p.shared.drain())
}

// submissions counts the submissions of all pipelines in the process. With a count per pipeline, a late completion from
// a closed pipeline could match a batch of the next pipeline on the same device.
var submissions atomic.Uint64

// maxLanes bounds Schedule.Lanes, so that a slot fits in the low slotBits bits of a token.
const (
	slotBits = 16
	maxLanes = 1024
)

// newToken returns the completion token for a new submission of the batch in slot.
func newToken(slot int) uint64 { return submissions.Add(1)<<slotBits | uint64(slot) }

// submitted moves a filling batch into flight. It fails if the pipeline is over.
func (p *Pipeline) submitted(b *Batch, why CloseReason) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	b.lane.move(b, inFlight)
	b.submitting, b.copied, b.read = true, false, [numTimestamps]readTimestamp{}
	b.token = newToken(b.slot)
	b.record.Closed = why
	b.record.Stages = [NumStages]Span{Fill: {b.record.Stages[Fill].Start, p.dev.Now()}}
	b.current, p.lone = 0, nil
	p.inFlight++
	b.startClock()
	b.openRange()
	return nil
}

// notify ends the submission, so the batch may complete at any time. If the caller must poll the batch's event, notify
// returns a *polled. Otherwise the device sends a notification and notify returns nil.
func (p *Pipeline) notify(b *Batch) (*polled, error) {
	token, alone, err := p.endSubmission(b)
	if err != nil {
		return nil, err
	}
	f := &polled{batch: b, token: token, out: b.route.out, ended: b.copiedOut}
	if alone {
		f.until = time.Now().Add(p.o.Spin)
		return f, nil
	}
	if p.schedule.Completion == ByAdaptivePolling {
		return f, nil
	}
	if err = b.route.out.Notify(token); err == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return nil, nil // the device was lost, and fail has already returned the batch
	}
	b.submitting = true
	return nil, err
}

// endSubmission allows the batch to complete, unless the pipeline is over. alone reports whether Submit must poll the batch
// first. Submit must do so if Options.Spin is set, the batch is small, and no other batch is in flight. If alone is true,
// the caller must call p.pollers.Done after polling.
func (p *Pipeline) endSubmission(b *Batch) (token uint64, alone bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, false, p.err
	}
	b.submitting = false
	b.startClock()
	alone = p.o.Spin > 0 && p.inFlight == 1 && b.bytes <= smallBatch
	if alone {
		p.pollers.Add(1) // before Close waits for pollers
	}
	return b.token, alone, nil
}

// withdrawn returns a batch to the caller after a failed submission. If the device is lost, withdrawn also ends the
// pipeline.
func (p *Pipeline) withdrawn(b *Batch, err error) {
	p.mu.Lock()
	b.submitting = false
	p.leaveFlight(b, filling)
	over := p.err != nil // the error was already reported, or the pipeline was closed
	p.mu.Unlock()
	if lost := p.dev.Err(); lost != nil {
		p.fail(lost)
	} else if !over {
		p.reportError(err)
	}
}

// complete receives completions from the device until ctx is done or the device is lost.
func (p *Pipeline) complete(ctx context.Context) {
	for {
		token, err := p.dev.WaitCompletion(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.fail(err)
			}
			return
		}
		p.batchCompleted(token)
	}
}

// batchCompleted completes the batch in flight with the given token. It ignores a token that matches no batch in
// flight. Such a token belongs to a batch that already failed, or to an earlier pipeline that was closed with work in
// flight.
func (p *Pipeline) batchCompleted(token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := token & (1<<slotBits - 1)
	if slot >= uint64(len(p.slots)) {
		return
	}
	b := p.slots[slot]
	if b.phase != inFlight || b.token != token {
		return
	}
	if b.probe == nil {
		b.record.Err = b.failure() // for a probe, Pipeline.compare checks the failures
	}
	b.untimed = true
	p.untimed = append(p.untimed, b)
	p.finishTurn(b)
	p.end(b)
}

// failure returns the error of the first operator that produced no results for the batch, or nil. The error doesn't
// name the faulty record. To find the record, the caller runs parts of the batch.
func (b *Batch) failure() error {
	for i, op := range b.pipe.o.Operators {
		f, ok := op.(operator.Faulty)
		if !ok {
			continue
		}
		if why := f.FailedBatch(b.Results(i), b.Rows()); why != "" {
			return device.Attribute(&operator.BatchError{Text: why}, op.Name())
		}
	}
	return nil
}

// end moves a batch in flight to phase done and sends it to Completed. For a probe's batch, it signals the probe, or
// releases the batch if the probe was abandoned. The caller holds p.mu.
func (p *Pipeline) end(b *Batch) {
	p.leaveFlight(b, done)
	switch {
	case b.probe == nil:
		p.completed <- b
	case b.probe.abandoned:
		go b.Release() // in a goroutine, because Release locks p.mu
	default:
		b.probe.back <- struct{}{} // the channel is buffered, so the send never blocks
	}
}

// leaveFlight moves a batch from phase inFlight to phase to, and wakes the waiters on p.changed. The caller holds p.mu.
func (p *Pipeline) leaveFlight(b *Batch, to phase) {
	b.lane.move(b, to)
	b.closeRange()
	p.inFlight--
	p.ended++
	p.changed.Broadcast()
}

// fail ends the pipeline because the device is lost. Every batch in flight fails with err.
func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		err = p.attribute(err)
		p.err, p.endedAt = err, time.Now()
	}
	for _, b := range p.slots {
		if b.phase == inFlight && !b.submitting { // a batch that is still being submitted fails in Submit
			b.record.Err = err
			p.end(b)
		}
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	if first {
		p.reportError(err)
		close(p.over)
	}
}

func (p *Pipeline) reportError(err error) { p.reportKind(device.Kind(err)) }

func (p *Pipeline) reportKind(kind string) {
	if p.o.Observer != nil {
		p.observing.Lock()
		p.o.Observer.DeviceError(p.info.ID, kind)
		p.observing.Unlock()
	}
}

// completions returns p.ended.
func (p *Pipeline) completions() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// awaitCompletion blocks the submission of b until the number of completions differs from seen. came is false if all
// batches in flight wait in this function, because none of them can complete. awaitCompletion returns an error once the
// pipeline is over.
func (p *Pipeline) awaitCompletion(b *Batch, seen uint64) (came bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starved++
	b.clock.waiting = true
	p.changed.Broadcast() // an earlier waiter may now have to give up
	defer func() { p.starved--; b.startClock() }()
	for p.ended == seen && p.inFlight > p.starved && p.err == nil {
		p.changed.Wait()
	}
	return p.ended != seen, p.err
}
