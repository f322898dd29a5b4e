package host

import (
	"millrace/internal/device"
	"millrace/internal/device/software"
)

// pool is a software.Pool with streams of this device.
type pool struct {
	*software.Pool
	dev *Device
}

// NewPool implements device.Device. The limit is rounded up to 2 MiB.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	if 0 < c.Limit && c.Limit < d.Info().Memory {
		c.Limit = (c.Limit + software.Granule - 1) / software.Granule * software.Granule
	}
	shared, err := d.Space.NewPool(c)
	if err != nil {
		return nil, err
	}
	p := &pool{Pool: shared, dev: d}
	if err := d.Add("new pool", p); err != nil {
		return nil, err
	}
	return p, nil
}

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

// Free implements device.Pool. m must be a whole allocation.
func (p *pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	own, err := p.dev.ownStream(call, s)
	if err != nil {
		return err
	}
	if err := p.dev.Usable(call); err != nil {
		return err
	}
	return misuse(p.Pool.Free(own, m, func() (uint64, error) { return own.enqueue(call, &op{kind: opFree, dst: m}) }))
}

// Close implements device.Pool.
func (p *pool) Close() error {
	if first := p.Pool.Close(); !first {
		return nil
	}
	p.dev.Remove(p)
	p.dev.Space.ReleasePools()
	return p.dev.Err()
}
