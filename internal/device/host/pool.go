package host

import (
	"slices"

	"millrace/internal/device"
	"millrace/internal/device/memory"
)

// pool is a memory.Pool with streams of this device.
type pool struct {
	*memory.Pool
	dev *Device
}

// NewPool implements device.Device. The limit is rounded up to 2 MiB.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	if 0 < c.Limit && c.Limit < d.info.Memory {
		c.Limit = (c.Limit + memory.Granule - 1) / memory.Granule * memory.Granule
	}
	shared, err := d.memory.NewPool(c)
	if err != nil {
		return nil, err
	}
	p := &pool{Pool: shared, dev: d}
	if err := d.register("new pool", p); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pool) leak() string { return p.Leak() }

// Alloc implements device.Pool.
func (p *pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	own, err := p.dev.ownStream(call, s)
	if err != nil {
		return device.Memory{}, err
	}
	if err := own.check(call); err != nil {
		return device.Memory{}, err
	}
	return p.Pool.Alloc(own, bytes)
}

// Free implements device.Pool. m must be what Alloc returned, whole.
func (p *pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	own, err := p.dev.ownStream(call, s)
	if err != nil {
		return err
	}
	if err := p.dev.usable(call); err != nil {
		return err
	}
	return misuse(p.Pool.Free(own, m, func() (uint64, error) { return own.enqueue(call, &op{kind: opFree, dst: m}) }))
}

// Trim implements device.Pool.
func (p *pool) Trim(keep int64) error {
	if err := p.dev.usable("pool trim"); err != nil {
		return err
	}
	return p.Pool.Trim(keep)
}

// SetReleaseThreshold implements device.Pool.
func (p *pool) SetReleaseThreshold(bytes int64) error {
	if err := p.dev.usable("pool release threshold"); err != nil {
		return err
	}
	return p.Pool.SetReleaseThreshold(bytes)
}

// Stats implements device.Pool.
func (p *pool) Stats() (device.PoolStats, error) {
	if err := p.dev.usable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.Pool.Stats()
}

// Close implements device.Pool.
func (p *pool) Close() error {
	if first := p.Pool.Close(); !first {
		return nil
	}
	p.dev.unregister(p)
	p.dev.releasePools()
	return p.dev.Err()
}

// releasePools lets every pool give back what it need not keep.
func (d *Device) releasePools() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pools = slices.DeleteFunc(d.pools, func(p *pool) bool { return p.Release() })
}
