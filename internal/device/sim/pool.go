package sim

import (
	"slices"

	"millrace/internal/device"
	"millrace/internal/device/memory"
)

// Pool is a device.Pool: a memory.Pool with streams of this device.
type Pool struct {
	dev    *Device
	shared *memory.Pool
}

// NewPool implements device.Device. The limit is rounded up to 256 bytes.
func (d *Device) NewPool(c device.PoolConfig) (device.Pool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable("new pool"); err != nil {
		return nil, err
	}
	shared, err := d.space.NewPool(c)
	if err != nil {
		return nil, err
	}
	p := &Pool{dev: d, shared: shared}
	d.pools = append(d.pools, p)
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
	if bytes > 0 && !p.shared.Closed() && d.injected(OutOfMemory, &d.counts.poolAllocs) {
		return device.Memory{}, device.Errorf(call, d.info.ID, device.ErrOutOfMemory, "injected")
	}
	m, err := p.shared.Alloc(stream, bytes)
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
	data, _, _ := d.space.Find(m)
	err = p.shared.Free(stream, m, func() (uint64, error) {
		freed := d.forget(m.Addr)
		stream.enqueue(&op{kind: Free, bytes: m.Bytes, pool: p, effect: func() error {
			freed.over = true
			if device.Invariants {
				memory.Fill(data, memory.Poison)
			}
			return nil
		}})
		return stream.last, nil
	})
	p.retire() // the stream may have got there already
	return err
}

// retire gives a closed pool's memory back once all of it is unused.
func (p *Pool) retire() {
	if p.shared.Closed() && p.shared.Release() {
		p.dev.pools = slices.DeleteFunc(p.dev.pools, func(o *Pool) bool { return o == p })
	}
}

// Trim implements device.Pool. Only whole pieces of 2 MiB and more go back.
func (p *Pool) Trim(keep int64) error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.dev.usable("pool trim"); err != nil {
		return err
	}
	return p.shared.Trim(keep)
}

// SetReleaseThreshold implements device.Pool.
func (p *Pool) SetReleaseThreshold(bytes int64) error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.dev.usable("pool release threshold"); err != nil {
		return err
	}
	return p.shared.SetReleaseThreshold(bytes)
}

// Stats implements device.Pool.
func (p *Pool) Stats() (device.PoolStats, error) {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if err := p.dev.usable("pool stats"); err != nil {
		return device.PoolStats{}, err
	}
	return p.shared.Stats()
}

// Close implements device.Pool. On a lost device it gives the pool back and returns ErrLost.
func (p *Pool) Close() error {
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if first := p.shared.Close(); !first {
		return nil
	}
	p.retire()
	return p.dev.usable("close pool")
}
