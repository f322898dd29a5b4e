package streams

import (
	"context"
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

// batchCompleted gives the batch back whose completion came. A token of no batch in flight is passed over: its batch
// was given back as failed, or its pipeline was closed with work in flight and this one made on the same device.
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
	b.untimed = true
	p.untimed = append(p.untimed, b)
	p.passOn(b)
	p.end(b)
}

// end takes the batch out of flight and hands it to the receiver of Completed, or to the probe that it is for. p.mu is
// held.
func (p *Pipeline) end(b *Batch) {
	p.leaveFlight(b, done)
	switch {
	case b.probe == nil:
		p.completed <- b
	case b.probe.abandoned:
		go b.Release() // it takes p.mu
	default:
		b.probe.back <- struct{}{} // there is room, so this never blocks
	}
}

// leaveFlight moves a batch out of flight and wakes who waits for that. p.mu is held.
func (p *Pipeline) leaveFlight(b *Batch, to phase) {
	b.lane.move(b, to)
	b.closeRange()
	p.inFlight--
	p.ended++
	if b.probe == nil {
		p.progress = time.Now()
	}
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

func (p *Pipeline) reportError(err error) { p.reportKind(device.Kind(err)) }

func (p *Pipeline) reportKind(kind string) {
	if p.cfg.Observer != nil {
		p.observing.Lock()
		p.cfg.Observer.DeviceError(p.info.ID, kind)
		p.observing.Unlock()
	}
}
