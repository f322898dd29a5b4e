package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// memoryLimit is the memory limit of a worker in these tests, in bytes: the value that docs/operations.md recommends.
const memoryLimit = 512 << 20

// hoarder is a load whose results or bookkeeping are much larger than its payloads.
type hoarder struct {
	name, operators string
	size            func(rng *rand.Rand) int // size of an input, in bytes
	inputs          int                      // number of inputs in the short form; together they exceed what a worker may hold
	env             []string
}

var hoarders = []hoarder{
	{
		name: "1 byte, results of 11 KB", operators: "crc32c,minhash?hashes=1024", size: func(*rand.Rand) int { return 1 }, inputs: 40_000,
		env: []string{"MILLRACE_BATCH_PAYLOADS=2048", "MILLRACE_LANES=2"},
	},
	{name: "256 bytes and the defaults", operators: "crc32c,minhash", size: func(*rand.Rand) int { return 256 }, inputs: 60_000},
	{name: "large", operators: "crc32c", size: func(rng *rand.Rand) int { return rng.IntN(1 << 20) }, inputs: 1000},
}

// TestMemoryIsBounded makes the result stream refuse everything while there are more inputs than a worker may hold.
// Then the stream accepts everything. The worker runs under a memory limit. It must stay alive and below the limit, and
// must not lose or double a result.
func TestMemoryIsBounded(t *testing.T) {
	need(t)
	t.Parallel()
	for _, h := range hoarders {
		t.Run(h.name, func(t *testing.T) {
			eachMode(t, func(r *rig) { r.hoard(h) })
		})
	}
}

func (r *rig) hoard(h hoarder) {
	r.operators(h.operators)
	r.set("MILLRACE_MAX_ACK_PENDING=1000000")
	r.set(h.env...)
	r.lead = endless
	r.serve(1)
	free := r.binary
	r.binary = r.confined(memoryLimit)
	r.work(1)
	r.binary = free
	config := r.StreamConfig(resultStream)
	full := config
	full.Discard, full.MaxMsgs = jetstream.DiscardNew, 100
	r.Create(full)
	r.feed(times(2*h.inputs, h.inputs), r.inputsOf(h.size)).wait()
	w := r.workers[0]
	r.until("the worker holds as many inputs as it can", r.holdsAll(w))
	r.Create(config)
	r.awaitFinished()
	r.wantBelow(w, memoryLimit)
	if a := r.close("memory limit of 512 MiB, results refused for a while: "+h.name, 1); a.dead > 0 {
		r.t.Errorf("%d dead letters, but every input is valid", a.dead)
	}
}

// steady is the number of equal reports in a row after which the reported amount is the worker's maximum.
const steady = 150

// holdsAll returns a function that reports whether the worker holds as many inputs as it can. The worker has had to
// wait for memory, or its memory use is steady because of another limit. Large payloads reach the limit on the bytes of
// submitted batches first.
func (r *rig) holdsAll(w *worker) func() bool {
	held, same := 0.0, 0
	return func() bool {
		used, err := w.metric(`millrace_memory_budget_bytes{state="used"}`)
		if err != nil || used == 0 || used != held {
			held, same = used, 0
			return false
		}
		same++
		waits, err := w.metric("millrace_memory_budget_waits_total")
		return err == nil && waits > 0 || same >= steady
	}
}

// wantBelow fails the test if a process has ever used more memory than limit, or was refused memory.
func (r *rig) wantBelow(w *worker, limit int64) {
	r.t.Helper()
	peak, err := peakMemory(w.cmd.Process.Pid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%s had %d MiB at most, and its limit is %d MiB", w.name, peak>>20, limit>>20)
	if peak > limit {
		r.t.Errorf("%s had %d MiB, want at most %d MiB", w.name, peak>>20, limit>>20)
	}
}

func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
