//go:build !invariants

package host_test

import (
	"testing"

	"millrace/internal/device"
)

// TestWrongFrees checks that a free is refused if the memory was not allocated or was already freed. (The invariants
// build panics.)
func TestWrongFrees(t *testing.T) {
	r := newRig(t)
	m, b := r.memory(4096), r.host(4096)
	p, err := r.dev.NewPool(device.PoolOptions{})
	r.ok(err)
	pooled, err := p.Alloc(r.s, 4096)
	r.ok(err)
	for _, err := range []error{
		r.dev.Free(m.Slice(0, 10)), r.dev.Free(m.Slice(256, 256)), r.dev.Free(device.Memory{}), r.dev.Free(pooled),
		r.dev.FreeHost(b.Slice(0, 10)), r.dev.FreeHost(b.Slice(10, 10)), r.dev.FreeHost(device.HostBuffer{}),
		p.Free(r.s, m), p.Free(r.s, pooled.Slice(0, 10)), p.Free(r.s, pooled.Slice(256, 256)), p.Free(r.s, device.Memory{}),
	} {
		r.fails(err, device.ErrInvalid)
	}
	r.ok(r.dev.Err())
	r.ok(r.dev.Free(m))
	r.ok(r.dev.FreeHost(b))
	r.ok(p.Free(r.s, pooled))
	for _, err := range []error{r.dev.Free(m), r.dev.FreeHost(b), p.Free(r.s, pooled)} {
		r.fails(err, device.ErrInvalid)
	}
}
