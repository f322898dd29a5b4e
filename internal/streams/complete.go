package streams

import (
	"context"
	"errors"
	"time"

	"millrace/internal/device"
)

// complete takes completions from the device until it is stopped or the device is lost.
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

// batchCompleted gives the batch back whose completion came, with its times. A token of no batch in flight is
// passed over: its batch was given back as failed, or its pipeline was closed with work in flight and this one
// made on the same device.
func (p *Pipeline) batchCompleted(token uint64) {
	p.landing.Lock()
	defer p.landing.Unlock()
	b := p.landed(token)
	if b == nil {
		return
	}
	last, err := p.readMarks(b)
	if errors.Is(err, device.ErrLost) {
		p.fail(err)
		return
	}
	if p.land(b, last, err) && err != nil {
		p.reportError(err)
	}
}

// land ends the flight of b, whose copy out ended last, or whose marks could not be read for the reason err. It
// reports false if the device was lost meanwhile and the batch given back as failed.
func (p *Pipeline) land(b *Batch, last lastMarks, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return false
	}
	p.placeCopies()
	if err == nil {
		p.place(b, last)
	}
	b.record.Err = err
	p.end(b)
	return true
}

// end takes the batch out of flight and hands it to the receiver of Completed. p.mu is held.
func (p *Pipeline) end(b *Batch) {
	p.leaveFlight(b, done)
	// Nothing that is still to come can have started before the oldest batch in flight was submitted.
	mark := b.record.Stages[CopyOut].End
	for _, other := range p.slots {
		if other.phase == inFlight && !p.activity.crowded() {
			mark = min(mark, other.record.Stages[Fill].End)
		}
	}
	p.activity.advance(mark)
	p.completed <- b
}

// leaveFlight moves a batch out of flight and wakes who waits for that. p.mu is held.
func (p *Pipeline) leaveFlight(b *Batch, to phase) {
	b.lane.move(b, to)
	b.closeRange()
	p.inFlight--
	p.ended++
	p.progress = time.Now()
	p.moved.Broadcast()
}

// fail is the end of the pipeline: the device is lost, and every batch in flight comes back with the reason.
func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		p.err = err
		close(p.over)
	}
	for _, b := range p.slots {
		if b.phase == inFlight && !b.submitting { // one being submitted goes back through Submit
			b.record.Err = err
			p.end(b)
		}
	}
	p.moved.Broadcast()
	p.mu.Unlock()
	if first {
		p.reportError(err)
	}
}

func (p *Pipeline) reportError(err error) {
	if p.cfg.Observer != nil {
		p.observing.Lock()
		p.cfg.Observer.DeviceError(p.info.ID, device.Kind(err))
		p.observing.Unlock()
	}
}
