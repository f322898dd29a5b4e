package streams

import (
	"context"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// complete takes completions from the device until ctx is done or the device is lost.
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

// batchCompleted hands back the batch with this token. It ignores a token that matches no batch in flight: that batch
// has already failed, or it belongs to an earlier pipeline on the same device that was closed with work in flight.
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
		b.record.Err = b.failure() // a probe compares failures with those that it knows
	}
	b.untimed = true
	p.untimed = append(p.untimed, b)
	p.finishTurn(b)
	p.end(b)
}

// failure returns the error of an operator that has left no results for the batch, or nil. Running parts of the batch shows which record
// is the cause.
func (b *Batch) failure() error {
	for i, op := range b.pipe.cfg.Operators {
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

// end takes the batch out of flight and sends it to Completed or to its probe. The caller holds p.mu.
func (p *Pipeline) end(b *Batch) {
	p.leaveFlight(b, done)
	switch {
	case b.probe == nil:
		p.completed <- b
	case b.probe.abandoned:
		go b.Release() // Release locks p.mu
	default:
		b.probe.back <- struct{}{} // the channel is buffered, so this never blocks
	}
}

// leaveFlight takes a batch out of flight and wakes the goroutines that wait for that. The caller holds p.mu.
func (p *Pipeline) leaveFlight(b *Batch, to phase) {
	b.lane.move(b, to)
	b.closeRange()
	p.inFlight--
	p.ended++
	if b.probe == nil {
		p.progress = time.Now()
	}
	p.changed.Broadcast()
}

// fail ends the pipeline because the device is lost. Every batch in flight comes back with err.
func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		err = p.attribute(err)
		p.err, p.endedAt = err, time.Now()
	}
	for _, b := range p.slots {
		if b.phase == inFlight && !b.submitting { // Submit returns a batch that is still being submitted
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
	if p.cfg.Observer != nil {
		p.observing.Lock()
		p.cfg.Observer.DeviceError(p.info.ID, kind)
		p.observing.Unlock()
	}
}
