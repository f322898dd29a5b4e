package streams

import (
	"time"

	"millrace/internal/device"
)

// Stats reads the pipeline's state, at any time. It fails where the device cannot give its pool's counters,
// because the pipeline is closed or the device lost; the rest is valid then too.
func (p *Pipeline) Stats() (Stats, error) {
	s := Stats{Device: p.info.ID, Pinned: p.slab.Pinned(), Pageable: p.slab.Pageable()}
	s.Scratch.Limit = p.cfg.ScratchLimit
	s.Scratch.Allocations, s.Scratch.Failures = p.scratch.Allocations(), p.scratch.Refused()
	s.Scratch.HostTime, s.HostWaited = p.scratch.HostTime(), time.Duration(p.hostWaited.Load())
	pool, err := device.PoolStats{}, p.Hung() // a device that hangs is not asked
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
	s.Engines, s.Busy, s.Overlap = p.activity.busy, p.activity.any, p.activity.several
	s.Uptime = max(p.dev.Now()-p.started, s.Busy) // the clocks of host and device agree only so well
	s.InHand, s.Progress = p.inHand, p.progress
	return s, err
}

// ScratchInstead is why scratch is preallocated and not from a pool: the device has none. It is nil otherwise.
func (p *Pipeline) ScratchInstead() error { return p.scratch.Instead() }

// Progress is when a batch last moved on.
func (p *Pipeline) Progress() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress
}
