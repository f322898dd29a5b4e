package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"millrace/internal/device/cuda/fakecuda"
)

// These tests run the worker without a GPU. They use the real kernels/runtime on a fake CUDA runtime, which returns
// selected errors. See package fakecuda.

// gpu returns the environment of a worker on fake GPUs. kernels/test/fake/control.hpp describes the settings.
func gpu(t *testing.T, settings string, env ...string) []string {
	t.Helper()
	programs(t)
	return append([]string{"MILLRACE_DEVICE=cuda", "MILLRACE_KERNELS=" + fakecuda.Library(t),
		fakecuda.Env + "=" + fakecuda.File(t, settings), "MILLRACE_OPERATORS=crc32c"}, env...)
}

// TestStartOnGPUs checks the error and exit code of a start on broken GPUs. Only a configuration that Millrace itself
// refuses causes exit code 2. CUDA errors don't.
func TestStartOnGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		env      []string
		code     int
		want     []string
	}{
		"too old": {"compute=70,72", nil, exitFailed,
			[]string{"device unavailable", "GPU 0 has compute capability 7.0", "GPU 1 has compute capability 7.2", "needs 7.5 or later"}},
		"too old, by name": {"compute=70,90", []string{"MILLRACE_DEVICES=0"}, exitFailed, []string{"compute capability 7.0", "7.5 or later"}},
		"no code for it": {"call=cudaFuncGetAttributes code=209 how=always", nil, exitFailed,
			[]string{"device unavailable", "cannot run the kernels that the library has", "7.5 and later (docs/gpus.md)"}},
		"invalid argument": {"compute=90 call=cudaStreamCreateWithFlags code=1 from=5", nil, exitFailed, []string{"pipeline on GPU-", "invalid argument", "code 1"}},
		"not supported":    {"compute=90 call=cudaEventCreateWithFlags code=801 from=3", nil, exitFailed, []string{"pipeline on GPU-", "code 801"}},
		"unknown code":     {"call=cudaMalloc code=4711 from=2", nil, exitLost, []string{"device lost", "code 4711"}},
		"no pinned memory": {"compute=90 call=cudaHostAlloc code=2 from=2", nil, exitFailed,
			[]string{"out of memory", "lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or MILLRACE_BATCH_PAYLOADS"}},
		"pinned memory refused": {"compute=90 call=cudaHostAlloc code=304 from=2", nil, exitFailed,
			[]string{"out of memory", "lower MILLRACE_LANES, MILLRACE_BATCH_BYTES or MILLRACE_BATCH_PAYLOADS"}},
		"pinned memory refused at once": {"call=cudaHostAlloc code=304", nil, exitFailed, []string{"out of memory", "code 304"}},
		"tiny scratch": {"", []string{"MILLRACE_SCRATCH_LIMIT=2MiB"}, exitFailed,
			[]string{"out of memory", "at most 2097152 bytes gives no memory", "raise MILLRACE_SCRATCH_LIMIT, to 64MiB or more"}},
		"scratch for each lane": {"pools=0", []string{"MILLRACE_SCRATCH_LIMIT=2MiB", "MILLRACE_BATCH_BYTES=1GiB"}, exitUsage,
			[]string{"no memory pools", "raise MILLRACE_SCRATCH_LIMIT"}},
	} {
		t.Run(name, func(t *testing.T) {
			call(t, gpu(t, c.settings, append(c.env, "MILLRACE_NATS_URL=nats://127.0.0.1:1")...), "run").want(t, c.code, c.want...)
		})
	}
}

// TestWorkOnGPUsThatLackSomething checks that the worker skips unusable GPUs. With auto and no usable GPU, it must use the CPU. Without
// memory pools, it must preallocate scratch. It must log each case and work.
func TestWorkOnGPUsThatLackSomething(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		env      []string
		want     []string
	}{
		"an old one beside a new one": {"compute=70,90", nil, []string{"A GPU IS LEFT OUT", "compute capability 7.0", `"device":"GPU-00000000-0000-0000-0000-000000000001"`}},
		"the oldest that runs":        {"compute=75", nil, []string{`"device":"GPU-00000000-0000-0000-0000-000000000000"`}},
		"old ones alone":              {"compute=70,70", []string{"MILLRACE_DEVICE=auto"}, []string{"FALLING BACK TO THE CPU", "compute capability 7.0", `"device":"host"`}},
		"no pools":                    {"pools=0", nil, []string{"scratch is preallocated", "has no memory pools", `"scratch":"preallocated"`}},
		"a driver without limits": {"limits=0 driver=12000", nil,
			[]string{"scratch is preallocated", "for CUDA 12.0", "as CUDA 12.4 makes it: update the driver", `"scratch":"preallocated"`}},
		"connections for 4 lanes":  {"", nil, []string{"fake GPU 0 with 8 connections", `"scratch":"pool"`}},
		"connections for 8 lanes":  {"", []string{"MILLRACE_LANES=8"}, []string{"fake GPU 0 with 13 connections"}},
		"connections for 64 lanes": {"", []string{"MILLRACE_LANES=64"}, []string{"fake GPU 0 with 32 connections"}},
		"own connections":          {"", []string{"CUDA_DEVICE_MAX_CONNECTIONS=7"}, []string{"fake GPU 0 with 7 connections"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			js := client(t, s)
			p := start(t, gpu(t, c.settings, append(c.env, "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_LOG_FORMAT=json")...),
				"run", "--progress")
			p.await(`"msg":"working"`)
			const n = 50
			for i := range n {
				if _, err := js.Publish(context.Background(), "ingest.test", fmt.Append(nil, "payload ", i)); err != nil {
					t.Fatal(err)
				}
			}
			p.await("50 payloads  ")
			for _, want := range c.want {
				if !strings.Contains(p.text(), want) {
					t.Errorf("the output lacks %q", want)
				}
			}
			if code := p.terminate(); code != exitDone {
				t.Errorf("exit status %d after SIGTERM, want 0", code)
			}
			if got := streamMessages(t, js, "RESULTS"); got != n {
				t.Errorf("%d results, want %d", got, n)
			}
		})
	}
}

// TestCheckOfGPUs checks that `worker check` reports the same as `worker run`.
func TestCheckOfGPUs(t *testing.T) {
	call(t, gpu(t, "compute=70,90"), "check").want(t, exitDone, "a GPU is left out", "compute capability 7.0", "MILLRACE_DEVICES")
	call(t, gpu(t, "pools=0"), "check").want(t, exitDone, "scratch is preallocated", "has no memory pools")
}
