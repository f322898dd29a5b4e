package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/internal/device"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// TestTooLowAMemoryLimitIsRefused checks that the worker refuses to start, and that `worker check` reports the same error.
func TestTooLowAMemoryLimitIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want []string
	}{
		"buffers of batches": {
			[]string{"MILLRACE_MEMORY_LIMIT=300MiB", "MILLRACE_OPERATORS=minhash?hashes=1024"},
			[]string{"the memory limit is 300 MiB (MILLRACE_MEMORY_LIMIT), and these settings need", "lower MILLRACE_LANES, MILLRACE_BATCH_PAYLOADS"},
		},
		"payloads pulled ahead": {
			[]string{"MILLRACE_MEMORY_LIMIT=480MiB", "MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=256"},
			[]string{"too little memory", "MILLRACE_PARTITIONS"},
		},
		"decompressed frames": {
			[]string{"MILLRACE_MEMORY_LIMIT=1GiB", "MILLRACE_DECOMPRESS=auto", "MILLRACE_FRAME_BYTES=1GiB"},
			[]string{"too little memory", "for frames", "raise the container's memory limit", "MILLRACE_FRAME_BYTES"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			env := append(slices.Clone(c.env), "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_PROVISION=true")
			call(t, env, "run").want(t, exitUsage, c.want...)
			call(t, env, "check").want(t, exitFailed, c.want...)
		})
	}
	call(t, []string{"MILLRACE_MEMORY_LIMIT=300MiB", "MILLRACE_OPERATORS=minhash?hashes=1024"}, "check").
		want(t, exitFailed, "the memory limit is 300 MiB (MILLRACE_MEMORY_LIMIT)")
	call(t, []string{"MILLRACE_MEMORY_LIMIT=1GiB", "MILLRACE_DECOMPRESS=auto", "MILLRACE_FRAME_BYTES=1GiB", "MILLRACE_DATA_DIR=."}, "check").
		want(t, exitFailed, "error    memory for payloads: too little memory: ", "for frames", "MILLRACE_FRAME_BYTES", " findings: 1 error, 0 warnings")
	call(t, []string{"MILLRACE_MEMORY_LIMIT=2GiB", "MILLRACE_DATA_DIR=."}, "check").
		want(t, exitDone, "2048 MiB (MILLRACE_MEMORY_LIMIT)", "for payloads in flight and their results")
}

// TestGoMemoryLimitIsDerived checks that the worker sets GOMEMLIMIT unless the user did.
func TestGoMemoryLimitIsDerived(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"derived":    {[]string{"MILLRACE_MEMORY_LIMIT=1GiB"}, "go_gc_gomemlimit_bytes 1.00663296e+09"},
		"the user's": {[]string{"MILLRACE_MEMORY_LIMIT=1GiB", "GOMEMLIMIT=900MiB"}, "go_gc_gomemlimit_bytes 9.437184e+08"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			p := start(t, append(c.env, "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_LOG_FORMAT=json"))
			p.await(`"msg":"working"`)
			metrics := body(t, address(t, p, "serving metrics and health")+"metrics")
			for _, want := range []string{c.want, `millrace_memory_budget_bytes{state="limit"}`, `millrace_memory_budget_bytes{state="used"} 0`, "millrace_memory_budget_waits_total 0"} {
				if !strings.Contains(metrics, want) {
					t.Errorf("the metrics lack %s", want)
				}
			}
			if code := p.terminate(); code != exitDone {
				t.Errorf("exit status %d after SIGTERM, want 0", code)
			}
		})
	}
}

// TestTooLittleMemoryForAPipelineIsAUsageError admits pipelines to a limit that has space for one of them.
func TestTooLittleMemoryForAPipelineIsAUsageError(t *testing.T) {
	m := memory.NewProcess(2<<30, false)
	for kind, f := range map[string]streams.Footprint{"cuda": {Host: 900 << 20, Device: 8 << 30, Scratch: 8 << 30}, "host": {Host: 1 << 20}} {
		if err := admit(m, kind)(f); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
	var usage usageError
	if err := admit(m, "host")(streams.Footprint{Scratch: 900 << 20}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "2048 MiB (MILLRACE_MEMORY_LIMIT)") {
		t.Errorf("%v, want a usage error that names the limit", err)
	}
}

// TestLimitOfLockedMemoryIsNamed checks that a pinning error names the limit of locked memory if the limit may be the
// cause.
func TestLimitOfLockedMemoryIsNamed(t *testing.T) {
	var locked unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked); err != nil {
		t.Fatal(err)
	}
	refused := device.Errorf("pin memory", "GPU-1", device.ErrOutOfMemory, "refused")
	m := &memory.Process{Pinned: math.MaxInt64}
	explained := explainMemory(m, refused).Error()
	if named := strings.Contains(explained, "RLIMIT_MEMLOCK"); named != (locked.Cur < math.MaxInt64) {
		t.Errorf("%q, but the process may lock %d bytes", explained, locked.Cur)
	}
	if err := explainMemory(m, device.ErrLost); !errors.Is(err, device.ErrLost) || strings.Contains(err.Error(), "RLIMIT") {
		t.Errorf("another error became %v", err)
	}
	m.Pinned = 1
	if err := explainMemory(m, refused); err.Error() != refused.Error() {
		t.Errorf("with 1 byte to pin the error became %v", err)
	}
}
