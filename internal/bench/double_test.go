package bench

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// doubles are the devices that rows use instead of the measured device.
var doubles = map[string]func(device.Device) device.Device{
	"legacy":     func(d device.Device) device.Device { return &onDefaultStreams{below: below{d}} },
	"per-thread": func(d device.Device) device.Device { return &onDefaultStreams{below: below{d}, perThread: true} },

	"releasing":   func(d device.Device) device.Device { return releasing{below{d}} },
	"synchronous": func(d device.Device) device.Device { return synchronous{below{d}} },
	"poolless":    func(d device.Device) device.Device { return poolless{below{d}} },

	"polling":  polling,
	"blocking": blocking,
}

// doublePipeline creates a pipeline that is closed before its device.
func doublePipeline(t *testing.T, d device.Device, list string, s streams.Schedule) (*streams.Pipeline, []operator.Operator) {
	t.Helper()
	ops := Parse(list)
	p, err := streams.New(d, streams.Config{
		Lanes: 4, BatchBytes: 1 << 16, BatchPayloads: 64, ScratchLimit: 64 << 20, Operators: ops, Schedule: s, Copies: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing the pipeline: %v", err)
		}
	})
	return p, ops
}

// submitDocuments submits a batch of n payloads of the given size. It passes the payloads to tell before the
// submission.
func submitDocuments(t *testing.T, p *streams.Pipeline, seed uint64, n, bytes int, tell func(slot int, payloads [][]byte)) {
	t.Helper()
	b, err := p.Acquire(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	payloads := make([][]byte, n)
	for i := range payloads {
		payloads[i] = make([]byte, bytes)
		Document(payloads[i], seed, i)
		b.Append(payloads[i])
	}
	tell(b.Slot(), payloads)
	if err := b.Submit(streams.ClosedByBytes); err != nil {
		t.Error(err)
	}
}

// TestDoublesGiveTheSameResults checks that every double gives the results of the operator's reference. Each submitter
// is locked to a thread.
func TestDoublesGiveTheSameResults(t *testing.T) {
	for name, double := range doubles {
		for _, d := range []device.Device{openHost(t), openSim(t)} {
			t.Run(fmt.Sprintf("%s on %s", name, d.Info().Kind), func(t *testing.T) {
				p, ops := doublePipeline(t, double(d), "crc32c,minhash?hashes=2", streams.Schedule{Name: name, Buffers: 1})
				const submitters, each = 3, 8
				want := make([][][]byte, p.Slots()) // entries belong to the owner of the slot's batch
				var left sync.WaitGroup
				for s := range submitters {
					left.Go(func() {
						runtime.LockOSThread()
						defer runtime.UnlockOSThread()
						for i := range each {
							submitDocuments(t, p, uint64(s*each+i), 1+i, 1+100*i*s, func(slot int, all [][]byte) { want[slot] = all })
						}
					})
				}
				for range submitters * each {
					b := <-p.Completed()
					wantReference(t, b, ops, want[b.Slot()])
					b.Release()
				}
				left.Wait()
				stats, err := p.Stats()
				if err != nil || stats.Scratch.Used != 0 || stats.Scratch.Allocations == 0 || stats.Scratch.HostTime <= 0 {
					t.Errorf("scratch at the end: %+v, %v", stats.Scratch, err)
				}
			})
		}
	}
}

// wantReference compares a completed batch with the reference.
func wantReference(t *testing.T, b *streams.Batch, ops []operator.Operator, payloads [][]byte) {
	t.Helper()
	if err := b.Err(); err != nil {
		t.Fatalf("batch failed: %v", err)
	}
	for i, op := range ops {
		var want []byte
		for _, payload := range payloads {
			want = op.AppendReference(want, payload)
		}
		if got := b.Results(i); !bytes.Equal(got, want) {
			t.Errorf("%s over %d payloads differs from the reference", op, b.Rows())
		}
	}
}

// TestLegacyDefaultStreamIsSerial checks that lanes don't overlap on the legacy default stream, and do on others.
func TestLegacyDefaultStreamIsSerial(t *testing.T) {
	const unit = time.Millisecond
	for name, want := range map[string]time.Duration{"non-blocking": 6 * unit, "legacy": 12 * unit, "per-thread": 6 * unit} {
		d, err := sim.Open(sim.Options{Cost: sim.Units(unit), Kernels: hostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		var on device.Device = d
		if double := doubles[name]; double != nil {
			on = double(d)
		}
		p, _ := doublePipeline(t, on, "crc32c", streams.Schedule{Name: name, Buffers: 1})
		release := d.Hold()
		for i := range 4 {
			submitDocuments(t, p, uint64(i), 1, 10, func(int, [][]byte) {})
		}
		release()
		for range 4 {
			(<-p.Completed()).Release()
		}
		if took := d.Now(); took != want {
			t.Errorf("%s: four batches took %v, want %v", name, took, want)
		}
	}
}

// TestAskingDoublesDoNotNotify checks that a double that queries events doesn't use the device's own notifications.
func TestAskingDoublesDoNotNotify(t *testing.T) {
	for name, want := range map[string]int{"polling": 0, "blocking": 0, "per-thread": 3} {
		d := openSim(t).(*sim.Device)
		p, _ := doublePipeline(t, doubles[name](d), "crc32c", streams.Overlapped)
		for i := range 3 {
			submitDocuments(t, p, uint64(i), 1, 10, func(int, [][]byte) {})
			(<-p.Completed()).Release()
		}
		trace, _ := d.Trace()
		if got := len(slices.DeleteFunc(trace, func(s sim.Span) bool { return s.Kind != sim.Notify })); got != want {
			t.Errorf("%s: %d notifications for 3 batches, want %d", name, got, want)
		}
	}
}
