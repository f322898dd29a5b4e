package alloc

import (
	"sync"

	"millrace/internal/device"
)

// synchronous allocates from the device for every Alloc and waits for the stream at every Free, as cudaMalloc and
// cudaFree do.
type synchronous struct {
	dev device.Device

	mu    sync.Mutex
	stats device.PoolStats
}

// Alloc allocates from the device, which may wait for all work on it.
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

// Free waits for the work on s and frees m.
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

// Trim does nothing, because no memory is kept.
func (p *synchronous) Trim(int64) error { return nil }

// SetReleaseThreshold does nothing, because no memory is kept.
func (p *synchronous) SetReleaseThreshold(int64) error { return nil }

// Stats implements device.Pool.
func (p *synchronous) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, nil
}

// Close does nothing. Callers must free the memory that they still hold.
func (p *synchronous) Close() error { return nil }
