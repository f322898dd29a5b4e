package alloc

import (
	"sync"

	"millrace/internal/device"
)

// synchronous is a pool that is none: every allocation asks the device, and every free waits for the stream, as
// cudaMalloc and cudaFree do.
type synchronous struct {
	dev device.Device

	mu    sync.Mutex
	stats device.PoolStats
}

// Alloc takes memory from the device, which may wait for all of its work.
func (p *synchronous) Alloc(_ device.Stream, bytes int) (device.Memory, error) {
	m, err := p.dev.Alloc(bytes)
	if err != nil {
		return m, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Used += int64(m.Bytes)
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	p.stats.Reserved, p.stats.ReservedHigh = p.stats.Used, p.stats.UsedHigh
	return m, nil
}

// Free waits for what is on s and gives m back.
func (p *synchronous) Free(s device.Stream, m device.Memory) error {
	if err := s.Synchronize(); err != nil {
		return err
	}
	if err := p.dev.Free(m); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Used -= int64(m.Bytes)
	p.stats.Reserved = p.stats.Used
	return nil
}

// Trim has nothing to give back.
func (p *synchronous) Trim(int64) error { return nil }

// SetReleaseThreshold means nothing where nothing is kept.
func (p *synchronous) SetReleaseThreshold(int64) error { return nil }

// Stats implements device.Pool.
func (p *synchronous) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, nil
}

// Close implements device.Pool. What is handed out stays its holder's to free.
func (p *synchronous) Close() error { return nil }
