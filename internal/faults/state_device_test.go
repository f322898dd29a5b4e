package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/operator/neardup"
)

// stateDeviceFaults are faults of a device that keeps states. The device fails at a random batch or decision of each worker.
var stateDeviceFaults = []struct {
	kind, fault string
	full, short int // number of workers that lose their device
	within      int // the device fails at a random one of the first batches or decisions; within is their number
}{
	{"lost", "device is lost", 40, 4, 40},
	{"launch", "device refuses every launch", 20, 2, 40},
	{"state", "device is lost, which only the state notices", 40, 4, 40},
	{"state_hangs", "a decision of the state does not end", 5, 1, 40},
}

// TestVerdictsAfterDeviceLoss makes the devices of workers, one worker after another, fail while they keep states. Each worker exits with status 70.
// The next worker has a device without states. It computes the batches in flight again, and its verdicts are those of an undisturbed run.
func TestVerdictsAfterDeviceLoss(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range stateDeviceFaults {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			r.failWorkers()
			r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2", "MILLRACE_BATCH_DEADLINE_MIN=1s", "MILLRACE_BATCH_DEADLINE_MAX=3s", "MILLRACE_DRAIN_TIMEOUT=2s")
			input := r.nearDuplicates()
			r.serve(1)
			r.work(1)
			f := r.feed(endless, input)
			r.awaitResults(1)
			r.retire()
			well, ends := r.env, times(c.full, c.short)
			for range ends {
				r.env = append(slices.Clone(well), fmt.Sprintf("FAILING_DEVICE=%s@%d", c.kind, 1+r.rng.IntN(c.within)))
				r.wantLostDevice(r.startWorker())
			}
			r.env = well
			r.work(1)
			f.finish()
			r.closeLate("with a state: "+c.fault, ends)
			r.wantHistory()
		})
	}
}

// wantLostDevice waits until a worker has ended because of its device.
func (r *rig) wantLostDevice(w *worker) {
	r.t.Helper()
	w.expected.Store(true)
	r.until("the worker has ended", w.hasEnded)
	if code := w.cmd.ProcessState.ExitCode(); code != exitLost {
		r.t.Errorf("%s ended with status %d, want %d", w.name, code, exitLost)
	}
}

// TestStateLosesAnIdleDevice checks that a worker with a single input exits if its state loses the device. The
// worker gets no later batch whose failure could report the loss.
func TestStateLosesAnIdleDevice(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.failWorkers()
	r.set("MILLRACE_EXACTLY_ONCE=required")
	input := r.nearDuplicates()
	r.serve(1)
	well := r.env
	r.set("FAILING_DEVICE=state@1")
	r.work(1)
	r.feed(1, func(int) *nats.Msg { return input(1) }).wait()
	r.wantLostDevice(r.workers[0])
	r.env, r.workers = well, nil
	r.work(1)
	r.closeLate("with a state: an idle device is lost, which only the state notices", 1)
}

// TestVerdictsWithRecordsThatBreakTheDevice publishes records that lose the device or never end, among near-duplicates. Each such record ends
// some workers before they identify it. Until then, the other records of its batches are computed again, and states are read back from the
// log. In the end, no state has such a record.
func TestVerdictsWithRecordsThatBreakTheDevice(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.failWorkers()
	r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2", "MILLRACE_BATCH_DEADLINE_MIN=2s", "MILLRACE_BATCH_DEADLINE_MAX=3s", "MILLRACE_DRAIN_TIMEOUT=5s")
	r.nearDuplicates()
	r.set("MILLRACE_FRAMING=none")
	r.split, r.batches = nil, []int{64, 16}
	breaks := func(payload []byte) bool {
		return bytes.HasPrefix(payload, []byte(lethal)) || bytes.HasPrefix(payload, []byte(hanging))
	}
	r.history.poison = func(_ neardup.Position, payload []byte) bool { return breaks(payload) }
	broken, each := times(6, 2), times(4000, 800)
	r.serve(1)
	s := r.supervise()
	r.until("the worker is ready", func() bool { return s.current().isReady() })
	f := r.feed(broken*each, func(i int) *nats.Msg {
		text := r.similarText(rand.New(rand.NewPCG(r.seed, uint64(i))), i)
		if i%each == each/2 {
			text = append([]byte([]string{lethal, hanging}[i/each%2]), text...)
		}
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%7), Data: text, Header: nats.Header{"Input": {fmt.Sprint(i)}}}
	})
	f.wait()
	r.awaitFinished()
	r.until("the worker after the last that ended is ready", func() bool { return s.current().isReady() })
	s.retire()
	codes := s.exitCodes()
	if len(codes) < broken || slices.ContainsFunc(codes, func(code int) bool { return code != exitLost }) {
		t.Errorf("%d records break the device: workers ended with the statuses %v, want at least one %d per record and no other", broken, codes, exitLost)
	}
	a := r.mustAudit(1)
	if a.dead != broken {
		t.Errorf("%d dead letters, want those of the %d records that break the device", a.dead, broken)
	}
	r.wantSecondOpinion()
	r.enter(fmt.Sprintf("with a state: records that break the device (%d workers ended)", len(codes)), broken, a)
	r.wantHistory()
}
