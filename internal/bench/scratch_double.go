package bench

import (
	"sync"

	"millrace/internal/device"
)

// releasing is a device with pools that release unused memory at every synchronization.
type releasing struct{ below }

// NewPool implements device.Device.
func (d releasing) NewPool(c device.PoolConfig) (device.Pool, error) {
	c.ReleaseThreshold = 0
	return d.Device.NewPool(c)
}

// poolless is a device without pools, like some GPUs. A pipeline preallocates its scratch there: one piece per stream,
// of the largest size.
type poolless struct{ below }

// NewPool implements device.Device.
func (d poolless) NewPool(device.PoolConfig) (device.Pool, error) {
	return nil, device.Errorf("new pool", d.Info().ID, device.ErrUnavailable, "this row is about a device without pools")
}

// synchronous is a device with synchronousPool as its pools.
type synchronous struct{ below }

// NewPool implements device.Device.
func (d synchronous) NewPool(device.PoolConfig) (device.Pool, error) {
	return &synchronousPool{dev: d.Device}, nil
}

// synchronousPool doesn't pool memory: every allocation calls the device, and every free waits for the stream, like
// cudaMalloc and cudaFree.
type synchronousPool struct {
	dev device.Device

	mu    sync.Mutex
	stats device.PoolStats
}

// Alloc allocates memory from the device, which may wait for all of its work.
func (p *synchronousPool) Alloc(_ device.Stream, bytes int) (device.Memory, error) {
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
func (p *synchronousPool) Free(s device.Stream, m device.Memory) error {
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

// Trim does nothing: there is no unused memory.
func (p *synchronousPool) Trim(int64) error { return nil }

// SetReleaseThreshold does nothing: no memory is kept.
func (p *synchronousPool) SetReleaseThreshold(int64) error { return nil }

// Stats implements device.Pool.
func (p *synchronousPool) Stats() (device.PoolStats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, nil
}

// Close implements device.Pool. Callers must still free their allocations.
func (p *synchronousPool) Close() error { return nil }
