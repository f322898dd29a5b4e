package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/device"
)

// complete takes completions from the device, in the one goroutine that the pipeline has, until it is
// stopped or the device is lost.
func (p *Pipeline) complete(ctx context.Context) {
	defer close(p.stopped)
	for {
		token, err := p.dev.WaitCompletion(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.fail(err)
			}
			return
		}
		p.batchCompleted(p.slots[token])
	}
}

// batchCompleted gives a batch back with its times.
func (p *Pipeline) batchCompleted(b *Batch) {
	times, err := b.deviceTimes()
	if errors.Is(err, device.ErrLost) {
		p.fail(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return // the device was lost meanwhile and the batch given back as failed
	}
	if err == nil {
		p.place(b, times)
	}
	b.record.Err = err
	p.end(b)
}

// deviceTimes reads the marks between the three device stages.
func (b *Batch) deviceTimes() (at [4]time.Duration, err error) {
	for i, e := range [...]device.Event{b.start, b.copiedIn, b.computed, b.copiedOut} {
		if at[i], err = e.Time(); err != nil {
			return at, fmt.Errorf("batch %d: reading its times: %w", b.record.Batch, err)
		}
	}
	return at, nil
}

// place turns the marks into stages. A copy engine serves one copy at a time, so a copy that its stream
// reached earlier started when the engine was done with the one before. p.mu is held.
func (p *Pipeline) place(b *Batch, at [4]time.Duration) {
	for i, stage := range [...]Stage{CopyIn, Compute, CopyOut} {
		engine := Engine(i)
		span := Span{at[i], at[i+1]}
		if before := p.engineFree[engine]; engine != ComputeEngine && before > span.Start && before < span.End {
			span.Start = before
		}
		p.engineFree[engine] = max(p.engineFree[engine], span.End)
		b.record.Stages[stage] = span
		p.activity.add(engine, span)
	}
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
