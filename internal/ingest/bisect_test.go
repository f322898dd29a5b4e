package ingest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// unfit is the length of a payload that picky refuses.
const unfit = 5000

// unfitAt returns a function that makes payloads. The payloads at the indices in at are unfit, and longer than all
// others.
func unfitAt(at ...int) func(i int) []byte {
	return func(i int) []byte {
		if slices.Contains(at, i) {
			return bytes.Repeat([]byte{'x'}, unfit)
		}
		return corpus.Text(uint64(i)+1, i*7%400)
	}
}

// picky is an operator that requests more than any device has if a batch's longest payload is unfit. The device then
// refuses the batch and stays usable.
type picky struct {
	device.HostKernel
	scratch bool // whether picky requests too much scratch, or else more results than a batch holds
}

func pickyKernels() []device.HostKernel {
	kernels := operator.HostKernels()
	kernels[0] = picky{kernels[0], false}
	return kernels
}

func (p picky) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := p.HostKernel.Bind(params)
	return pickyBound{b, p.scratch}, err
}

type pickyBound struct {
	device.BoundHostKernel
	scratch bool
}

func (p pickyBound) Needs(s device.Shape) device.Needs {
	n := p.BoundHostKernel.Needs(s)
	if s.Longest == unfit && p.scratch {
		n.Scratch = 1 << 40
	} else if s.Longest == unfit {
		n.Result = 1 << 40
	}
	return n
}

func pickySim(t testing.TB, faults ...sim.Fault) device.Device {
	t.Helper()
	d, err := sim.Open(sim.Options{Kernels: pickyKernels(), Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
		d = nil // as in openHost
	})
	return d
}

// wantUnfitApart checks that every unfit payload has a dead letter and every other payload a result.
func (r *rig) wantUnfitApart(n int, payload func(i int) []byte, unfit ...int) {
	r.Helper()
	r.awaitFinished(n)
	found := r.stored("results.>")
	for i := range n {
		seq := uint64(i + 1)
		if slices.Contains(unfit, i) {
			m := r.deadLetter(deadStream, seq)
			wantHeaders(r.TB, m.Headers(), map[string]string{results.HeaderReason: string(results.OperatorError)})
			if !bytes.Equal(m.Data(), payload(i)) {
				r.Errorf("the dead letter of input %d is not its payload", seq)
			}
			continue
		}
		if len(found[seq]) != 1 {
			r.Fatalf("input %d has %d results, want 1", seq, len(found[seq]))
		}
		if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][0].Data()); err != nil {
			r.Errorf("result of input %d: %v", seq, err)
		}
	}
	if len(found) != n-len(unfit) {
		r.Errorf("results of %d inputs, want %d", len(found), n-len(unfit))
	}
}

// TestWantOfMemoryIsNoPayloadsFault makes the device refuse scratch repeatedly while the worker bisects a failed
// batch.
func TestWantOfMemoryIsNoPayloadsFault(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.MaxDeliver = 1000
	r.provision()
	const n, bad = 300, 100
	payload := unfitAt(bad)
	r.publish(n, payload)
	run := r.run(pickySim(t, sim.Fault{Kind: sim.OutOfMemory, Probability: 0.4}), streams.Options{Lanes: 1, BatchPayloads: 30})
	r.tally.await(t, inflight.DeadLettered, 1)
	r.tally.awaitStored(t, n-1)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantUnfitApart(n, payload, bad)
	if r.tally.count(inflight.Nacked) == 0 {
		t.Error("no batch was refused for want of memory: nothing was shown")
	}
}

// TestDrainEndsTheSearch lets the drain time out while the results of a searched batch wait until they are stored.
func TestDrainEndsTheSearch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	r.opts.DrainTimeout = 100 * time.Millisecond
	const n, bad = 60, 30
	payload := unfitAt(bad)
	r.publish(n, payload)
	first := r.prepare(pickySim(t), streams.Options{Lanes: 1})
	first.start()
	r.tally.await(t, inflight.DeadLettered, 1) // the dead letter doesn't wait for the results
	r.Log.Await(t, notStored)
	if err := first.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	if r.tally.stored() != 0 || r.tally.count(inflight.Nacked) == 0 {
		t.Errorf("%d acknowledged and %d given back, want none and some", r.tally.stored(), r.tally.count(inflight.Nacked))
	}
	r.Create(config)
	second := r.run(pickySim(t), streams.Options{})
	r.tally.awaitStored(t, n-1)
	if err := second.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantUnfitApart(n, payload, bad)
}
