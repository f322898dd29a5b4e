package streams

import (
	"time"

	"millrace/internal/device"
)

// Stats returns the pipeline's current state. It returns an error if the device can't report its pool's counters
// because the pipeline is closed or the device is lost. The other fields are valid even then.
func (p *Pipeline) Stats() (Stats, error) {
	s := Stats{Device: p.info.ID, Pinned: p.slab.Pinned(), Pageable: p.slab.Pageable()}
	s.Scratch.Limit = p.cfg.ScratchLimit
	s.Scratch.Allocations, s.Scratch.Failures = p.scratch.Allocations(), p.scratch.Refused()
	s.Scratch.HostTime, s.HostWaited = p.scratch.HostTime(), time.Duration(p.hostWaited.Load())
	pool, err := device.PoolStats{}, p.Hung() // don't query a hung device
	if err == nil {
		pool, err = p.scratch.Stats()
	}
	s.Scratch.Used, s.Scratch.Reserved, s.Scratch.HighWater = pool.Used, pool.Reserved, pool.UsedHigh

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lanes {
		switch l.state() {
		case inFlight:
			s.Lanes.InFlight++
		case filling:
			s.Lanes.Filling++
		default:
			s.Lanes.Free++
		}
	}
	now := p.dev.Now()
	p.countUntil(now)
	s.Engines, s.Busy, s.Overlap = p.activity.busy, p.activity.any, p.activity.several
	s.Counted = max(p.activity.horizon-p.started, s.Busy)
	s.Uptime = max(now-p.started, s.Counted) // the clocks of host and device differ slightly
	s.InHand, s.Progress = p.inHand, p.progress
	return s, err
}

// ScratchInstead returns why scratch is preallocated: the device has no pools. It returns nil if scratch comes from a
// pool.
func (p *Pipeline) ScratchInstead() error { return p.scratch.Instead() }

// Progress returns when a batch last changed its state.
func (p *Pipeline) Progress() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress
}
