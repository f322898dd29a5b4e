package bench

import (
	"fmt"
	"testing"

	"millrace/internal/alloc"
	"millrace/internal/device"
)

// scratchRig is a stream and scratch on a device, allocated like a pipeline's.
type scratchRig struct {
	*testing.T
	dev     device.Device
	stream  device.Stream
	scratch *alloc.Counted
}

func newScratchRig(t *testing.T, dev device.Device) *scratchRig {
	t.Helper()
	r := &scratchRig{T: t, dev: dev}
	var err error
	r.stream, err = dev.NewStream("scratch")
	r.ok(err)
	t.Cleanup(func() { r.ok(r.stream.Close()) })
	r.scratch, err = alloc.NewScratch(dev, alloc.Scratch{Limit: 64 << 20, Piece: 8 << 20})
	r.ok(err)
	t.Cleanup(func() { r.ok(r.scratch.Close()) })
	return r
}

func (r *scratchRig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *scratchRig) stats() device.PoolStats {
	r.Helper()
	s, err := r.scratch.Stats()
	r.ok(err)
	return s
}

// onScratchDoubles runs a test on both devices with every double that changes how scratch is allocated.
func onScratchDoubles(t *testing.T, test func(r *scratchRig, name string)) {
	for _, name := range []string{"releasing", "synchronous", "poolless"} {
		for _, d := range []device.Device{openHost(t), openSim(t)} {
			t.Run(fmt.Sprintf("%s on %s", name, d.Info().Kind), func(t *testing.T) {
				test(newScratchRig(t, doubles[name](d)), name)
			})
		}
	}
}

// TestScratchOfDoublesIsMemory checks that scratch can be written and read in stream order and is counted, and that its
// high-water mark stays.
func TestScratchOfDoublesIsMemory(t *testing.T) {
	onScratchDoubles(t, func(r *scratchRig, _ string) {
		b, err := r.dev.AllocHost(1 << 10)
		r.ok(err)
		for i, bytes := range []int{1 << 10, 8 << 20, 4 << 10} {
			m, err := r.scratch.Alloc(r.stream, bytes)
			r.ok(err)
			r.ok(r.stream.Fill(m, byte(i+1)))
			r.ok(r.stream.CopyOut(b, m.Slice(bytes-b.Len(), b.Len())))
			if used := r.stats().Used; used < int64(bytes) {
				r.Errorf("%d bytes used with %d handed out", used, bytes)
			}
			r.ok(r.scratch.Free(r.stream, m))
			r.ok(r.stream.Synchronize())
			if got := b.Bytes()[7]; got != byte(i+1) {
				r.Errorf("allocation %d held %d", i, got)
			}
		}
		if n, left := r.scratch.Allocations(), r.scratch.Outstanding(); n != 3 || left != 0 {
			r.Errorf("%d allocations, %d outstanding, want 3 and none", n, left)
		}
		if s := r.stats(); s.Used != 0 || s.UsedHigh < 8<<20 {
			r.Errorf("%d bytes used at the end and a high water of %d, want 0 and at least %d", s.Used, s.UsedHigh, 8<<20)
		}
		r.ok(r.dev.FreeHost(b))
	})
}

// TestWhatScratchDoublesKeep checks how much memory each double keeps between two batches, which is the property that
// differs.
func TestWhatScratchDoublesKeep(t *testing.T) {
	onScratchDoubles(t, func(r *scratchRig, name string) {
		m, err := r.scratch.Alloc(r.stream, 1<<20)
		r.ok(err)
		r.ok(r.scratch.Free(r.stream, m))
		r.ok(r.stream.Synchronize())
		if kept := r.stats().Reserved; (kept > 0) != (name == "poolless") {
			r.Errorf("%d bytes are kept", kept)
		}
	})
}

// TestSynchronousFreeWaits checks that a free waits for the work before it.
func TestSynchronousFreeWaits(t *testing.T) {
	r := newScratchRig(t, synchronous{below{openHost(t)}})
	m, err := r.scratch.Alloc(r.stream, 1<<10)
	r.ok(err)
	e, err := r.dev.NewEvent(0)
	r.ok(err)
	r.ok(r.stream.Fill(m, 1))
	r.ok(r.stream.Record(e))
	r.ok(r.scratch.Free(r.stream, m))
	if done, err := e.Done(); !done || err != nil {
		t.Errorf("the memory was freed before the stream was done with it (%v)", err)
	}
	r.ok(e.Close())
}
