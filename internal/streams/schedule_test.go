package streams_test

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
	"millrace/internal/streams"
)

// variants returns the schedules that exist only for measurements, in addition to the worker's own.
func variants() []streams.Schedule {
	overlapped := func(name string, change func(s *streams.Schedule)) streams.Schedule {
		s := streams.Overlapped
		s.Name = name
		change(&s)
		return s
	}
	return []streams.Schedule{
		overlapped("adaptive polling", func(s *streams.Schedule) { s.Completion = streams.ByAdaptivePolling }),
		bySize(),
		overlapped("host-waits", func(s *streams.Schedule) { s.HostWaits = true }),
	}
}

// Every schedule, completion method and allocation method gives the results of the operator's reference.
func TestVariantsGiveTheSameResults(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		for _, schedule := range variants() {
			t.Run(schedule.Name, func(t *testing.T) {
				checkResults(t, d, streams.Options{Lanes: 3, Schedule: schedule})
			})
		}
		t.Run("preallocated", func(t *testing.T) { checkResults(t, poolless{d}, streams.Options{Lanes: 3, ScratchLimit: 128 << 20}) })
		t.Run("in-place", func(t *testing.T) {
			checkResults(t, openSim(t, sim.Options{MaxInPlace: 2000}), streams.Options{Lanes: 3, Spin: time.Second})
		})
		t.Run("spin", func(t *testing.T) { checkResults(t, d, streams.Options{Lanes: 3, Spin: time.Second}) })
		t.Run("spin-in-vain", func(t *testing.T) { checkResults(t, d, streams.Options{Lanes: 3, Spin: 1}) })
	})
}

// checkResults runs batches of different sizes from several submitters. Each submitter is locked to its thread.
func checkResults(t *testing.T, d device.Device, o streams.Options) {
	t.Helper()
	o.Operators = operators(t, "crc32c,minhash?hashes=2")
	p := newPipeline(t, d, o)
	const submitters, each = 3, 8
	want := make([][][]byte, p.Slots()) // an entry belongs to the owner of the slot's batch
	var left sync.WaitGroup
	for s := range submitters {
		left.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for i := range each {
				rows := someRows(uint64(s*each+i), 1+i, 1+100*i*s)
				b := acquire(t, p, rows)
				want[b.Slot()] = rows
				if err := b.Submit(streams.ClosedByBytes); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range submitters * each {
		b := <-p.Completed()
		wantResults(t, b, o.Operators, want[b.Slot()])
		b.Release()
	}
	left.Wait()
	if s := stats(t, p); s.Scratch.Used != 0 || s.Scratch.Allocations == 0 || s.Scratch.HostTime <= 0 {
		t.Errorf("scratch at the end: %+v", s.Scratch)
	}
}

// A batch can be submitted again with the same payloads. It gives the same results under a new number.
func TestAgain(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
		submit(t, p, someRows(1, 3, 100))
		b := <-p.Completed()
		first, number := bytes.Clone(b.Results(0)), b.ReadRecord().Batch
		for turn := range 3 {
			b.Again()
			if err := b.Submit(streams.ClosedByBytes); err != nil {
				t.Fatal(err)
			}
			if again := <-p.Completed(); again != b {
				t.Fatal("another batch came back")
			}
			if got := b.Results(0); !bytes.Equal(got, first) || b.ReadRecord().Batch <= number {
				t.Errorf("submission %d gave %x as batch %d, but the first gave %x as batch %d", turn, got, b.ReadRecord().Batch, first, number)
			}
			number = b.ReadRecord().Batch
		}
		b.Release()
		if n := stats(t, p).InHand; n != 0 {
			t.Errorf("%d batches not released at the end", n)
		}
	})
}

// A batch that is alone on the device comes back without a notification. A batch among others needs a notification.
func TestALoneBatchIsAskedAbout(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(time.Microsecond)})
	spied := spyOn(d)
	p := newPipeline(t, spied, streams.Options{Lanes: 2, Spin: time.Minute, Operators: operators(t, "crc32c")})
	alone := submit(t, p, someRows(1, 1, 10))
	(<-p.Completed()).Release()
	if n := notifications(d); n != 0 {
		t.Errorf("%d notifications for a lone batch", n)
	}
	lane := alone.ReadRecord().Lane
	open := spied.gate(t, fmt.Sprintf("lane-%d", 1-lane)) // the other lane
	batches := [2]*streams.Batch{acquire(t, p, someRows(2, 1, 10)), acquire(t, p, someRows(3, 1, 10))}
	var first sync.WaitGroup
	first.Go(func() {
		if err := batches[0].Submit(streams.ClosedByBytes); err != nil { // the batch is polled until the gate opens
			t.Error(err)
		}
	})
	for polled := d.Now(); d.Now() == polled; { // each poll advances the simulated host's time by a microsecond
		runtime.Gosched()
	}
	if err := batches[1].Submit(streams.ClosedByBytes); err != nil {
		t.Fatal(err)
	}
	if second := <-p.Completed(); second != batches[1] {
		t.Error("the batch behind the gate came back")
	}
	open()
	first.Wait()
	<-p.Completed()
	for _, b := range batches {
		b.Release()
	}
	if n := notifications(d); n != 1 {
		t.Errorf("%d notifications for the second of two batches in flight, want 1", n)
	}
}

func notifications(d *sim.Device) int {
	trace := d.Trace()
	return len(slices.DeleteFunc(trace, func(s sim.Span) bool { return s.Kind != software.Notify }))
}

// Ranges have the names of the trace, are properly nested, and are all closed.
func TestRanges(t *testing.T) {
	d := &ranged{Device: openSim(t, sim.Options{})}
	p := newPipeline(t, d, streams.Options{Lanes: 1, Ranges: true, Operators: operators(t, "crc32c")})
	for i := range 2 {
		submit(t, p, someRows(uint64(i), 1, 10))
		(<-p.Completed()).Release()
	}
	want := []string{
		"+batch 1", "+copy_in", "-copy_in", "+compute", "-compute", "+copy_out", "-copy_out", "-batch 1",
		"+batch 2", "+copy_in", "-copy_in", "+compute", "-compute", "+copy_out", "-copy_out", "-batch 2",
	}
	if !slices.Equal(d.said, want) {
		t.Errorf("got %q, want %q", d.said, want)
	}
}

// ranged is a device that records its ranges.
type ranged struct {
	device.Device

	mu   sync.Mutex
	said []string
}

func (r *ranged) Range(name string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, "+"+name)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.said = append(r.said, "-"+name)
	}
}

// A batch that the kernels use in place is not copied. It gives the same results as a copied batch.
func TestInPlace(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit), MaxInPlace: 200})
	ops := operators(t, "crc32c,minhash?hashes=2")
	p := newPipeline(t, d, streams.Options{Lanes: 1, Operators: ops})
	for _, c := range []struct {
		bytes   int
		inPlace bool
	}{{0, true}, {188, true}, {10, true}, {201, false}, {10, true}} { // results of 4 and 8 bytes
		rows := [][]byte{make([]byte, c.bytes)}
		before := d.Now()
		submit(t, p, rows)
		b := <-p.Completed()
		wantResults(t, b, ops, rows)
		r := b.ReadRecord()
		in, compute, out := r.Stages[streams.CopyIn], r.Stages[streams.Compute], r.Stages[streams.CopyOut]
		if r.InPlace != c.inPlace || (in == streams.Span{}) != c.inPlace || (out == streams.Span{}) != c.inPlace {
			t.Errorf("%d bytes: in place %v, copied in at %v and out at %v", c.bytes, r.InPlace, in, out)
		}
		if want := 2 * unit; compute.Duration() != want || compute.Start < before {
			t.Errorf("%d bytes: computed at %v, want %v from %v on", c.bytes, compute, want, before)
		}
		b.Release()
	}
	trace := d.Trace()
	copies := len(slices.DeleteFunc(trace, func(s sim.Span) bool { return s.Kind != software.CopyIn && s.Kind != software.CopyOut }))
	if copies != 2 {
		t.Errorf("%d copies, want the copies of one batch", copies)
	}
	if got := stats(t, p); got.Engines[streams.ComputeEngine] != 10*unit || got.Busy != 12*unit {
		t.Errorf("busy for %v, computing for %v; want %v and %v", got.Busy, got.Engines[streams.ComputeEngine], 12*unit, 10*unit)
	}
}

// With Options.Copies, a batch is copied even if the kernels could use it in place.
func TestCopiesWhereInPlaceIsPossible(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit), MaxInPlace: 200})
	ops := operators(t, "crc32c")
	p := newPipeline(t, d, streams.Options{Lanes: 1, Operators: ops, Copies: true})
	rows := [][]byte{make([]byte, 100)}
	submit(t, p, rows)
	b := <-p.Completed()
	wantResults(t, b, ops, rows)
	r := b.ReadRecord()
	if r.InPlace || r.Stages[streams.CopyIn].Duration() != unit || r.Stages[streams.CopyOut].Duration() != unit {
		t.Errorf("in place %v, copied in at %v and out at %v; want copies of %v each", r.InPlace, r.Stages[streams.CopyIn], r.Stages[streams.CopyOut], unit)
	}
	b.Release()
}
