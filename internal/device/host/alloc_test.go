//go:build !invariants && !race

package host_test

import (
	"context"
	"testing"

	"millrace/internal/device"
)

// TestNoGoAllocationOnceWarm checks that a batch's whole path allocates no Go memory. The race detector and the
// invariants tag exclude this test from the build, because both allocate memory. Kernels may allocate, but the test's
// kernel doesn't.
func TestNoGoAllocationOnceWarm(t *testing.T) {
	r := newRig(t, kernelFunc(func(_ []byte, _ []uint32, _ []byte, parallel device.Parallel) error {
		parallel(8, func(int) {})
		return nil
	}))
	k, err := r.dev.Kernel("func", nil)
	r.ok(err)
	p, err := r.dev.NewPool(device.PoolOptions{ReleaseThreshold: 1 << 30})
	r.ok(err)
	e, err := r.dev.NewEvent(device.Timed)
	r.ok(err)
	other := r.stream("other")
	const rows, length = 64, 1 << 16
	in, out := r.host(length), r.host(4*rows)
	args := device.LaunchArgs{
		Shape: device.Shape{Rows: rows}, Rows: r.memory(length), Offsets: r.memory(4 * (rows + 1)), Result: r.memory(4 * rows),
	}
	r.ok(r.s.Fill(args.Offsets, 0))
	needs := k.Needs(args.Shape)
	ctx := context.Background()

	perBatch := testing.AllocsPerRun(200, func() {
		args.Scratch, err = p.Alloc(r.s, needs.Scratch+1)
		r.ok(err)
		r.ok(r.s.CopyIn(args.Rows, in))
		r.ok(r.s.Launch(k, args))
		r.ok(r.s.Record(e))
		r.ok(other.Wait(e))
		r.ok(r.s.CopyOut(out, args.Result))
		r.ok(p.Free(r.s, args.Scratch))
		r.ok(r.s.Notify(1))
		_, err := r.dev.WaitCompletion(ctx)
		r.ok(err)
		_, err = e.Time()
		r.ok(err)
		r.ok(r.s.Synchronize())
		r.ok(other.Synchronize()) // otherwise the queue of other grows if its goroutine gets no processor
	})
	if perBatch != 0 {
		t.Errorf("%v Go allocations per batch, want 0", perBatch)
	}
}
