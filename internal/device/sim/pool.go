package sim

import (
	"millrace/internal/device"
	"millrace/internal/device/software"
)

// Pool is a software.Pool with streams of this device.
type Pool struct {
	*software.Pool
	dev *Device
}

// NewPool implements device.Device. The limit is rounded up to 256 bytes.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	shared, err := d.Space.NewPool(c)
	if err != nil {
		return nil, err
	}
	p := &Pool{Pool: shared, dev: d}
	if err := d.Add("new pool", p); err != nil {
		return nil, err
	}
	return p, nil
}

// Alloc implements device.Pool.
func (p *Pool) Alloc(s device.Stream, bytes int) (device.Memory, error) {
	const call = "pool alloc"
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	stream, err := d.stream(call, s)
	if err != nil {
		return device.Memory{}, err
	}
	if bytes > 0 && !p.Closed() && d.injected(OutOfMemory, &d.counts.poolAllocs) {
		return device.Memory{}, d.Errorf(call, device.ErrOutOfMemory, "injected")
	}
	m, err := p.Pool.Alloc(stream, bytes)
	if err == nil {
		d.begin(m.Addr)
	}
	return m, err
}

// Free implements device.Pool. It works on a closed pool too.
func (p *Pool) Free(s device.Stream, m device.Memory) error {
	const call = "pool free"
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	stream, err := d.stream(call, s)
	if err != nil {
		return err
	}
	data, _, _ := d.Space.Find(m)
	err = p.Pool.Free(stream, m, func() (uint64, error) {
		freed := d.forget(m.Addr)
		stream.enqueue(&op{kind: Free, bytes: m.Bytes, pool: p, effect: func() error {
			freed.over = true
			if device.Invariants {
				software.Fill(data, software.Poison)
			}
			return nil
		}})
		return stream.last, nil
	})
	p.retire() // the stream may have reached the free already
	return err
}

// retire releases a closed pool's memory once none of it is in use.
func (p *Pool) retire() {
	if p.Closed() {
		p.Release()
	}
}

// Close implements device.Pool. On a lost device it frees the pool and returns ErrLost.
func (p *Pool) Close() error {
	if first := p.Pool.Close(); !first {
		return nil
	}
	p.dev.Remove(p)
	p.retire()
	return p.dev.Err()
}
