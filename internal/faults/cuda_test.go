package faults

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/device/cuda/fakecuda"
)

// cudaFault is a failure of the fake CUDA library under a complete worker with the real kernel runtime.
type cudaFault struct {
	call string
	code int
	how  string // once, always (every later call of this function), device (every later call), or hang (no work ends from then on)
}

func (c cudaFault) String() string {
	return fmt.Sprintf("%s fails with %d, how=%s", c.call, c.code, c.how)
}

// These are the CUDA functions that a worker calls for its batches, and error codes that give no information about a
// payload. The codes mean a refused argument, a refused launch, an unavailable device, a failed kernel, and a
// terminated MPS client. CUDA doesn't have the last code.
var (
	cudaCalls = []string{
		"cudaMemcpyAsync", "cudaLaunchKernel", "cudaEventRecord", "cudaEventQuery", "cudaEventElapsedTime", "cudaMallocFromPoolAsync",
		"cudaFreeAsync", "cudaSetDevice",
	}
	cudaCodes = []int{1, 701, 100, 700, 810, 12345}
	cudaHows  = []string{"once", "always", "device"}
)

// shortCUDA lists the faults that the short form injects.
var shortCUDA = []cudaFault{
	{"cudaMemcpyAsync", 810, "device"}, {"cudaMemcpyAsync", 1, "once"}, {"cudaMemcpyAsync", 1, "always"}, {"cudaLaunchKernel", 701, "always"},
	{"cudaLaunchKernel", 700, "device"}, {"cudaEventQuery", 12345, "once"}, {"cudaEventQuery", 1, "always"}, {"cudaFreeAsync", 1, "once"}, {"cudaMallocFromPoolAsync", 100, "always"},
	{"cudaMallocFromPoolAsync", 2, "once"},
}

// cudaFaults returns the faults to inject. In the full form, each of the calls also fails with each of cudaCodes.
func cudaFaults(short []cudaFault, calls ...string) []cudaFault {
	if !isFull() {
		return short
	}
	all := slices.Clone(short)
	for _, call := range calls {
		for _, code := range cudaCodes {
			for _, how := range cudaHows {
				if f := (cudaFault{call, code, how}); !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		}
	}
	return all
}

// TestCUDAFails makes CUDA fail while a worker processes valid payloads. The worker exits with status 70 or finishes. A
// second worker with a working CUDA processes the remaining payloads. No payload is given up.
func TestCUDAFails(t *testing.T) {
	need(t)
	t.Parallel()
	modes := modes
	if !isFull() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, mode)
			r.set("MILLRACE_DEVICE=cuda", "MILLRACE_KERNELS="+fakecuda.Library(t), "MILLRACE_BATCH_PAYLOADS=10")
			r.serve(1)
			r.work(1) // creates the streams
			r.retire()
			for _, f := range cudaFaults(shortCUDA, cudaCalls...) {
				r.failCUDA(f, r.inputs())
			}
		})
	}
}

// stateCUDA lists faults of functions that a worker calls for its states. Only states clear memory and wait for a stream.
var stateCUDA = []cudaFault{
	{"cudaMemsetAsync", 700, "device"}, {"cudaMemsetAsync", 12345, "once"}, {"cudaStreamSynchronize", 700, "device"}, {"cudaStreamSynchronize", 810, "device"},
	{"cudaStreamSynchronize", 1, "once"}, {"cudaStreamSynchronize", 0, "hang"},
}

// TestCUDAFailsUnderAState is TestCUDAFails with states in the memory of the GPU. Each group of faults has its own streams.
func TestCUDAFailsUnderAState(t *testing.T) {
	need(t)
	t.Parallel()
	faults := slices.Concat(cudaFaults(stateCUDA, "cudaMemsetAsync", "cudaStreamSynchronize"), cudaFaults(shortCUDA, cudaCalls...))
	groups := (len(faults) + 15) / 16
	for g := range groups {
		t.Run(fmt.Sprintf("group %d of %d", g+1, groups), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			input := r.nearDuplicates()
			r.batches = nil
			r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2", "MILLRACE_DEVICE=cuda", "MILLRACE_KERNELS="+fakecuda.Library(t), "MILLRACE_BATCH_PAYLOADS=50",
				"MILLRACE_BATCH_DEADLINE_MIN=2s", "MILLRACE_BATCH_DEADLINE_MAX=5s", "MILLRACE_DRAIN_TIMEOUT=2s")
			r.serve(1)
			r.work(1) // creates the streams
			r.retire()
			for i := g; i < len(faults); i += groups {
				r.failCUDA(faults[i], func(n int) *nats.Msg { return input(300*(i/groups) + n) })
			}
			r.wantHistory()
		})
	}
}

func (r *rig) failCUDA(f cudaFault, input func(i int) *nats.Msg) {
	r.t.Helper()
	const payloads = 300
	first := r.Stream(inputStream).CachedInfo().State.LastSeq + 1
	if r.history != nil {
		first = 1 // verdicts depend on all inputs
	}
	r.feed(payloads, input).wait()
	well := r.env
	r.set(fakecuda.Env + "=" + fakecuda.File(r.t, fmt.Sprintf("tell=1 compute=90 call=%s code=%d how=%s from=%d", f.call, f.code, f.how, afterStart[f.call])))
	w := r.startWorker()
	w.expected.Store(true)
	r.env = well
	holdsUp := func() bool { // the device works, but no partition can have a state
		_, said := w.said("its inputs are held up")
		return r.history != nil && f.how == "always" && said
	}
	if !r.comes(func() bool { return w.hasEnded() || r.isFinished() || holdsUp() }) {
		r.t.Fatalf("%v: the worker has neither finished nor ended", f)
	}
	code := 0
	if w.hasEnded() {
		code = exitLost
		r.work(1)
	} else if holdsUp() {
		w.terminate()
		r.work(1)
	} else if f.how == "device" || f.how == "hang" {
		r.t.Errorf("%v: the worker didn't exit after it lost its device", f)
	}
	if !w.hasEnded() {
		w.terminate()
	}
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("%v: the worker ended with status %d, want %d\n%s", f, got, code, w.tail())
	}
	if _, came := w.said(fmt.Sprintf("fake CUDA: %s fails with %d", f.call, f.code)); !came {
		r.t.Errorf("%v: the fake CUDA never failed, so the test shows nothing: see afterStart", f)
	}
	if a := r.closeFrom(first, "CUDA: "+f.String(), 1); a.dead > 0 {
		r.t.Errorf("%v: %d of %d valid payloads were given up", f, a.dead, a.payloads)
	}
}

// afterStart maps each function to the number of the call that fails. By then the worker has started and done some
// work.
var afterStart = map[string]int{
	"cudaMemcpyAsync": 21, "cudaLaunchKernel": 6, "cudaEventRecord": 60, "cudaEventQuery": 15, "cudaEventElapsedTime": 10,
	"cudaMallocFromPoolAsync": 6, "cudaFreeAsync": 6, "cudaSetDevice": 400, "cudaMemsetAsync": 4, "cudaStreamSynchronize": 4,
}
