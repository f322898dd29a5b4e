package streams

import (
	"sync/atomic"
	"time"
)

// This file moves batches into flight, takes them back if a submission fails, and makes submissions wait for memory
// that other batches hold. See complete.go for normal completion.

// submissions counts the submissions of all pipelines in the process. Counting across pipelines keeps a late completion
// from a closed pipeline from matching a batch of the next pipeline on the same device.
var submissions atomic.Uint64

// maxLanes bounds Schedule.Lanes, so that a slot fits in the low bits of a token.
const (
	slotBits = 16
	maxLanes = 1024
)

// newToken returns the completion token for a new submission of the batch in slot.
func newToken(slot int) uint64 { return submissions.Add(1)<<slotBits | uint64(slot) }

// submitted moves a filling batch into flight.
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

// notify arranges for the batch's completion. From then on the batch may come back at any time. If the batch's event
// has to be polled, for a while or until it completes, notify returns what to poll; otherwise it returns nil.
func (p *Pipeline) notify(b *Batch) (*polled, error) {
	token, alone, err := p.endSubmission(b)
	if err != nil {
		return nil, err
	}
	f := &polled{batch: b, token: token, out: b.route.out, ended: b.copiedOut}
	if alone {
		f.until = time.Now().Add(p.cfg.Spin)
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
		return nil, nil // the device has been lost, and the batch came back through Completed
	}
	b.submitting = true
	return nil, err
}

// endSubmission lets the batch come back through Completed from now on, unless the pipeline is over. If alone is true,
// the batch is small and no other batch is in flight, so Submit should poll it for a while (see Config.Spin). In that
// case the caller must call p.pollers.Done after polling.
func (p *Pipeline) endSubmission(b *Batch) (token uint64, alone bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, false, p.err
	}
	b.submitting = false
	b.startClock()
	alone = p.cfg.Spin > 0 && p.inFlight == 1 && b.bytes <= smallBatch
	if alone {
		p.pollers.Add(1) // before Close starts to wait
	}
	return b.token, alone, nil
}

// withdrawn returns a batch to the caller after a failed submission. If the device is lost, it also ends the pipeline.
func (p *Pipeline) withdrawn(b *Batch, err error) {
	p.mu.Lock()
	b.submitting = false
	p.leaveFlight(b, filling)
	over := p.err != nil // already reported, or closed without a failure
	p.mu.Unlock()
	if lost := p.dev.Err(); lost != nil {
		p.fail(lost)
	} else if !over {
		p.reportError(err)
	}
}

// completions returns how many batches have left flight.
func (p *Pipeline) completions() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// awaitCompletion blocks the submission of b until p.ended differs from seen, which completions returned before. It
// returns false if every batch in flight waits here too, so that waiting can't succeed. It returns an error once the
// pipeline is over.
func (p *Pipeline) awaitCompletion(b *Batch, seen uint64) (came bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starved++
	b.clock.waiting = true
	p.changed.Broadcast() // an earlier waiter may now be unable to succeed
	defer func() { p.starved--; b.startClock() }()
	for p.ended == seen && p.inFlight > p.starved && p.err == nil {
		p.changed.Wait()
	}
	return p.ended != seen, p.err
}
