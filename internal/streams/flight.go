package streams

import (
	"sync/atomic"
	"time"
)

// What moves batches into flight and out of it again when a submission fails, and what lets a submission wait
// for others' memory. complete.go has the ordinary way out.

// flights numbers the flights of all pipelines of the process. A completion that outlives its pipeline, because
// the device had it when the pipeline was closed, can so never be taken for one of the next pipeline.
var flights atomic.Uint64

// maxLanes bounds Schedule.Lanes, so that a slot fits the low bits of a token.
const (
	slotBits = 16
	maxLanes = 1024
)

// newToken makes the completion token of a new flight of the batch in slot.
func newToken(slot int) uint64 { return flights.Add(1)<<slotBits | uint64(slot) }

// submitted takes a filling batch into flight.
func (p *Pipeline) submitted(b *Batch, why CloseReason) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	b.lane.move(b, inFlight)
	b.submitting, b.copied, b.read = true, false, [numMarks]readMark{}
	b.token = newToken(b.slot)
	b.record.Closed = why
	b.record.Stages = [NumStages]Span{Fill: {b.record.Stages[Fill].Start, p.dev.Now()}}
	p.inFlight++
	b.begin()
	b.openRange()
	return nil
}

// notify arranges for the batch's completion, and with that lets the batch go. Where its event is to be asked instead
// of a notification, for now or always, it returns what to ask.
func (p *Pipeline) notify(b *Batch) (*flight, error) {
	token, alone, err := p.letGo(b)
	if err != nil {
		return nil, err
	}
	f := &flight{batch: b, token: token, out: b.route.out, ended: b.copiedOut}
	if alone {
		f.until = time.Now().Add(p.cfg.Spin)
		return f, nil
	}
	if p.schedule.Completion == ByNapping {
		return f, nil
	}
	if err = b.route.out.Notify(token); err == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return nil, nil // the device was lost in between, and the batch came back through Completed with that
	}
	b.submitting = true
	return nil, err
}

// letGo ends the time in which only Submit gives the batch back, unless the pipeline is over. alone reports that the
// batch is small, that nothing else is in flight and that Submit is to ask for its end for a while: see Config.Spin. Then
// p.asking counts it until that is over.
func (p *Pipeline) letGo(b *Batch) (token uint64, alone bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, false, p.err
	}
	b.submitting = false
	b.begin()
	alone = p.cfg.Spin > 0 && p.inFlight == 1 && b.bytes <= smallBatch
	if alone {
		p.asking.Add(1) // before Close can begin to wait
	}
	return b.token, alone, nil
}

// withdrawn gives a batch whose submission failed back to the caller, and ends the pipeline where the device
// is lost.
func (p *Pipeline) withdrawn(b *Batch, err error) {
	p.mu.Lock()
	b.submitting = false
	p.leaveFlight(b, filling)
	over := p.err != nil // and has been reported, or is no failure
	p.mu.Unlock()
	if lost := p.dev.Err(); lost != nil {
		p.fail(lost)
	} else if !over {
		p.reportError(err)
	}
}

// completions counts the batches that have left flight.
func (p *Pipeline) completions() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// awaitCompletion has b wait until a batch has left flight since completions said seen. It returns false where
// waiting is in vain because every batch in flight waits here too, and an error once the pipeline is over.
func (p *Pipeline) awaitCompletion(b *Batch, seen uint64) (came bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starved++
	b.clock.waiting = true
	p.moved.Broadcast() // who waits already may now be waiting in vain
	defer func() { p.starved--; b.begin() }()
	for p.ended == seen && p.inFlight > p.starved && p.err == nil {
		p.moved.Wait()
	}
	return p.ended != seen, p.err
}
