package host_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"millrace/internal/device"
)

// kernelFunc is an operator that runs a function, with a result of 64 bytes.
type kernelFunc func(rows []byte, offsets []uint32, result []byte, parallel device.Parallel) error

func (kernelFunc) Name() string                                  { return "func" }
func (k kernelFunc) Bind([]byte) (device.BoundHostKernel, error) { return k, nil }
func (kernelFunc) Needs(device.Shape) device.Needs               { return device.Needs{Result: 64} }
func (k kernelFunc) Run(rows []byte, offsets []uint32, _, result []byte, parallel device.Parallel) error {
	return k(rows, offsets, result, parallel)
}

// spread sets each byte of its result in a separate call.
var spread = kernelFunc(func(_ []byte, _ []uint32, result []byte, parallel device.Parallel) error {
	parallel(len(result), func(i int) { result[i] = byte(i + 1) })
	return nil
})

// launch runs k on a batch of one empty row and returns the memory with its result.
func (r *rig) launch(s device.Stream, k device.Kernel) (result device.Memory) {
	r.Helper()
	args := device.LaunchArgs{Shape: device.Shape{Rows: 1}, Offsets: r.memory(8), Result: r.memory(64)}
	r.ok(s.Fill(args.Offsets, 0))
	r.ok(s.Launch(k, args))
	return args.Result
}

func (r *rig) kernel(name string) device.Kernel {
	r.Helper()
	k, err := r.dev.Kernel(name, nil)
	r.ok(err)
	return k
}

func TestLaunchSpreads(t *testing.T) {
	r := newRig(t, spread)
	b := r.host(64)
	r.ok(r.s.CopyOut(b, r.launch(r.s, r.kernel("func"))))
	r.ok(r.s.Synchronize())
	for i, got := range b.Bytes() {
		if got != byte(i+1) {
			t.Errorf("byte %d is %d: not set by the call with its index", i, got)
		}
	}
}

// TestNestedParallel checks that a nested call of Parallel completes even if all workers are busy.
func TestNestedParallel(t *testing.T) {
	var calls atomic.Int64
	r := newRig(t, kernelFunc(func(_ []byte, _ []uint32, _ []byte, parallel device.Parallel) error {
		parallel(0, func(int) { calls.Add(1 << 32) })
		parallel(-1, func(int) { calls.Add(1 << 32) })
		parallel(20, func(int) { parallel(30, func(int) { calls.Add(1) }) })
		return nil
	}))
	k := r.kernel("func")
	streams := []device.Stream{r.s, r.stream("a"), r.stream("b"), r.stream("c")}
	for _, s := range streams {
		r.launch(s, k)
	}
	for _, s := range streams {
		r.ok(s.Synchronize())
	}
	if got := calls.Load(); got != 4*20*30 {
		t.Errorf("%d calls, want %d", got, 4*20*30)
	}
}

// TestFailedKernelLosesDevice checks that a kernel that fails or panics loses the device, as on a GPU. The kernel runs
// on the stream's goroutine or on a worker's.
func TestFailedKernelLosesDevice(t *testing.T) {
	for name, run := range map[string]kernelFunc{
		"error": func([]byte, []uint32, []byte, device.Parallel) error { return errors.New("no more grain") },
		"panic": func([]byte, []uint32, []byte, device.Parallel) error { panic("no more grain") },
		"panic in parallel": func(_ []byte, _ []uint32, _ []byte, parallel device.Parallel) error {
			parallel(100, func(i int) {
				if i >= 50 {
					panic("no more grain")
				}
			})
			return nil
		},
		"panic of a single call": func(_ []byte, _ []uint32, _ []byte, parallel device.Parallel) error {
			parallel(1, func(int) { panic("no more grain") })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, run)
			r.launch(r.s, r.kernel("func"))
			r.wantLost("no more grain")
		})
	}
}

// TestBadOffsetsLoseDevice checks that offsets outside the rows lose the device, like an illegal address on a GPU.
func TestBadOffsetsLoseDevice(t *testing.T) {
	for name, table := range map[string][]byte{
		"past the rows": {0, 0, 0, 0, 9, 0, 0, 0},
		"backwards":     {2, 0, 0, 0, 1, 0, 0, 0},
		"huge":          {0, 0, 0, 0, 255, 255, 255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, spread)
			in := r.host(8)
			copy(in.Bytes(), table)
			args := device.LaunchArgs{
				Shape: device.Shape{Rows: 1, Bytes: 8, Longest: 8}, Rows: r.memory(8), Offsets: r.memory(8), Result: r.memory(64),
			}
			r.ok(r.s.CopyIn(args.Offsets, in))
			r.ok(r.s.Launch(r.kernel("func"), args))
			r.wantLost("offset 1")
		})
	}
}

// TestMisalignedLaunch checks that a launch with misaligned offsets or results is refused.
func TestMisalignedLaunch(t *testing.T) {
	r := newRig(t, spread)
	args := device.LaunchArgs{Shape: device.Shape{Rows: 1}, Offsets: r.memory(8), Result: r.memory(128).Slice(8, 64)}
	r.fails(r.s.Launch(r.kernel("func"), args), device.ErrInvalid)
	args.Result, args.Offsets = r.memory(64), r.memory(16).Slice(1, 8)
	r.fails(r.s.Launch(r.kernel("func"), args), device.ErrInvalid)
}
