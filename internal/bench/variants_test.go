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
	"millrace/internal/device/software"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// variants are the devices that rows use in place of the measured device.
var variants = map[string]func(device.Device) device.Device{
	"legacy": legacyDefault, "per-thread": perThreadDefault,
	"releasing": releasing, "synchronous": synchronous, "poolless": poolless,
	"polling": polling, "blocking": blocking,
}

// variantPipeline creates a pipeline and closes it before its device.
func variantPipeline(t *testing.T, d device.Device, list string, s streams.Schedule) (*streams.Pipeline, []operator.Operator) {
	t.Helper()
	ops := Parse(list)
	p, err := streams.New(d, streams.Options{
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

// submitDocuments submits a batch of n payloads of the given size. Before that, it calls tell with the payloads.
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

// TestVariantsGiveTheSameResults compares every variant's results with the operator's reference. Each submitter is
// locked to a thread.
func TestVariantsGiveTheSameResults(t *testing.T) {
	for name, variant := range variants {
		for _, d := range []device.Device{openHost(t), openSim(t)} {
			t.Run(fmt.Sprintf("%s on %s", name, d.Info().Kind), func(t *testing.T) {
				p, ops := variantPipeline(t, variant(d), "crc32c,minhash?hashes=2", streams.Schedule{Name: name, Buffers: 1})
				const submitters, each = 3, 8
				want := make([][][]byte, p.Slots()) // each entry belongs to the owner of that slot's batch
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

// TestLegacyDefaultStreamIsSerial checks that lanes overlap on all streams except the legacy default stream.
func TestLegacyDefaultStreamIsSerial(t *testing.T) {
	const unit = time.Millisecond
	for name, want := range map[string]time.Duration{"non-blocking": 6 * unit, "legacy": 12 * unit, "per-thread": 6 * unit} {
		d, err := sim.Open(sim.Options{Cost: sim.Units(unit), Kernels: hostKernels()})
		if err != nil {
			t.Fatal(err)
		}
		var on device.Device = d
		if variant := variants[name]; variant != nil {
			on = variant(d)
		}
		p, _ := variantPipeline(t, on, "crc32c", streams.Schedule{Name: name, Buffers: 1})
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

// TestAskingVariantsDoNotNotify checks that a variant that polls events doesn't use the device's notifications.
func TestAskingVariantsDoNotNotify(t *testing.T) {
	for name, want := range map[string]int{"polling": 0, "blocking": 0, "per-thread": 3} {
		d := openSim(t).(*sim.Device)
		p, _ := variantPipeline(t, variants[name](d), "crc32c", streams.Overlapped)
		for i := range 3 {
			submitDocuments(t, p, uint64(i), 1, 10, func(int, [][]byte) {})
			(<-p.Completed()).Release()
		}
		trace := d.Trace()
		if got := len(slices.DeleteFunc(trace, func(s sim.Span) bool { return s.Kind != software.Notify })); got != want {
			t.Errorf("%s: %d notifications for 3 batches, want %d", name, got, want)
		}
	}
}

// scratchRig is a stream and scratch memory on a device, allocated as for a pipeline.
type scratchRig struct {
	*testing.T
	dev     device.Device
	stream  device.Stream
	scratch *streams.ScratchPool
}

func newScratchRig(t *testing.T, dev device.Device) *scratchRig {
	t.Helper()
	r := &scratchRig{T: t, dev: dev}
	var err error
	r.stream, err = dev.NewStream("scratch")
	r.ok(err)
	t.Cleanup(func() { r.ok(r.stream.Close()) })
	r.scratch, err = streams.NewScratch(dev, streams.ScratchOptions{Limit: 64 << 20, Piece: 8 << 20})
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

// onScratchVariants runs a test on both devices with every variant that changes the allocation of scratch.
func onScratchVariants(t *testing.T, test func(r *scratchRig, name string)) {
	for _, name := range []string{"releasing", "synchronous", "poolless"} {
		for _, d := range []device.Device{openHost(t), openSim(t)} {
			t.Run(fmt.Sprintf("%s on %s", name, d.Info().Kind), func(t *testing.T) {
				test(newScratchRig(t, variants[name](d)), name)
			})
		}
	}
}

// TestScratchOfVariantsIsMemory checks that scratch is accessible in stream order, and that the statistics include it.
func TestScratchOfVariantsIsMemory(t *testing.T) {
	onScratchVariants(t, func(r *scratchRig, _ string) {
		b, err := r.dev.AllocHost(1 << 10)
		r.ok(err)
		for i, bytes := range []int{1 << 10, 8 << 20, 4 << 10} {
			m, err := r.scratch.Alloc(r.stream, bytes)
			r.ok(err)
			r.ok(r.stream.Fill(m, byte(i+1)))
			r.ok(r.stream.CopyOut(b, m.Slice(bytes-b.Len(), b.Len())))
			if used := r.stats().Used; used < int64(bytes) {
				r.Errorf("%d bytes used with %d allocated", used, bytes)
			}
			r.ok(r.scratch.Free(r.stream, m))
			r.ok(r.stream.Synchronize())
			if got := b.Bytes()[7]; got != byte(i+1) {
				r.Errorf("allocation %d held %d", i, got)
			}
		}
		if n := r.scratch.Allocations(); n != 3 {
			r.Errorf("%d allocations, want 3", n)
		}
		if s := r.stats(); s.Used != 0 {
			r.Errorf("%d bytes used at the end", s.Used)
		}
		r.ok(r.dev.FreeHost(b))
	})
}

// TestWhatScratchVariantsKeep checks the memory that each variant keeps between two batches. The variants differ in
// this amount.
func TestWhatScratchVariantsKeep(t *testing.T) {
	onScratchVariants(t, func(r *scratchRig, name string) {
		m, err := r.scratch.Alloc(r.stream, 1<<20)
		r.ok(err)
		r.ok(r.scratch.Free(r.stream, m))
		r.ok(r.stream.Synchronize())
		if kept := r.stats().Reserved; (kept > 0) != (name == "poolless") {
			r.Errorf("%d bytes are kept", kept)
		}
	})
}

// TestSynchronousFreeWaits checks that a free waits for earlier work.
func TestSynchronousFreeWaits(t *testing.T) {
	r := newScratchRig(t, synchronous(openHost(t)))
	m, err := r.scratch.Alloc(r.stream, 1<<10)
	r.ok(err)
	e, err := r.dev.NewEvent(0)
	r.ok(err)
	r.ok(r.stream.Fill(m, 1))
	r.ok(r.stream.Record(e))
	r.ok(r.scratch.Free(r.stream, m))
	if done, err := e.Done(); !done || err != nil {
		t.Errorf("the memory was freed before the stream had finished (%v)", err)
	}
	r.ok(e.Close())
}
