//go:build invariants

package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/sim"
)

// TestMisusePanics checks that the invariants build panics in the call that makes a mistake.
func TestMisusePanics(t *testing.T) {
	for name, c := range map[string]struct {
		misuse func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer)
		words  string
	}{
		"look before completion": {func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer) {
			r.ok(s.CopyOut(h.Slice(0, 8), m))
			h.Slice(8, 8).Bytes() // another part is allowed
			h.Slice(7, 8).Bytes()
		}, "copy out on stream s"},
		"free in use": {func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer) {
			r.ok(s.Fill(m, 1))
			r.ok(r.dev.Free(m))
		}, "fill on stream s"},
		"free host in use": {func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer) {
			r.ok(s.CopyIn(m, h.Slice(0, 8)))
			r.ok(r.dev.FreeHost(h))
		}, "copy in on stream s"},
		"wait for an unrecorded event": {func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer) {
			r.ok(s.Wait(r.event()))
		}, "never recorded"},
		"a row longer than the shape says": {func(r *rig, s device.Stream, m device.Memory, h device.HostBuffer) {
			b := r.batch("four")
			b.shape.Longest = 3
			r.ok(s.CopyIn(b.dev, b.in))
			r.ok(s.Launch(r.kernel("crc"), b.args()))
			r.ok(s.Synchronize())
		}, "row 0 is 4 bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, sim.Options{Cost: sim.Units(ms)})
			s, m, h := r.stream("s"), r.memory(8), r.host(16)
			defer func() {
				// The panic left work that can't be completed.
				r.abandoned = true
				if said := fmt.Sprint(recover()); !strings.Contains(said, c.words) {
					t.Errorf("panic %q, want one that says %q", said, c.words)
				}
			}()
			c.misuse(r, s, m, h)
		})
	}
}

// TestFreedPoolMemoryIsPoisoned checks that freed pool memory is overwritten with poison.
func TestFreedPoolMemoryIsPoisoned(t *testing.T) {
	r := open(t, sim.Options{})
	s, p, h := r.stream("s"), r.pool(device.PoolOptions{Limit: 256}), r.host(256)
	m := take(r, p, s, 256)
	r.ok(s.Fill(m, 7))
	r.ok(p.Free(s, m))
	m = take(r, p, s, 256)
	r.ok(s.CopyOut(h, m))
	r.ok(p.Free(s, m))
	r.ok(s.Synchronize())
	for i, got := range h.Bytes() {
		if got == 7 {
			t.Fatalf("byte %d still has its value from before the free", i)
		}
	}
}
