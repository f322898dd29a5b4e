package streams_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/device/software"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// starved is a pipeline on which one stalled batch holds all scratch, and other batches wait for scratch.
type starved struct {
	*streams.Pipeline
	open    func() // resumes the stalled batch
	first   *streams.Batch
	waiting []*streams.Batch
	said    chan error // errors of the waiting Submit calls
}

// starve makes n batches wait for scratch. It must run in a synctest bubble, which detects the wait.
func starve(t *testing.T, d *spy, n int, o streams.Options) *starved {
	t.Helper()
	rows := [][]byte{make([]byte, 100<<10)}
	o.Lanes, o.Operators = n+1, operators(t, "minhash?hashes=2")
	o.BatchBytes, o.BatchPayloads = 100<<10, 8
	o.ScratchLimit = 600 << 10 // one batch takes a little over 400 KiB
	s := &starved{Pipeline: newPipeline(t, d, o), said: make(chan error, n)}
	s.open = d.gate(t, "lane-0")
	t.Cleanup(s.open)
	s.first = submit(t, s.Pipeline, rows)
	for range n {
		b := acquire(t, s.Pipeline, rows)
		s.waiting = append(s.waiting, b)
		go func() { s.said <- b.Submit(streams.ClosedByBytes) }()
	}
	synctest.Wait()
	select {
	case err := <-s.said:
		t.Fatalf("a batch did not wait for scratch: %v", err)
	default:
	}
	return s
}

// results collects the errors of every waiting Submit.
func (s *starved) results() (all []error) {
	for range s.waiting {
		all = append(all, <-s.said)
	}
	return all
}

func TestSeveralBatchesWaitForScratchOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		s := starve(t, d, 3, streams.Options{})
		s.open()
		for range 4 {
			b := <-s.Completed()
			if b.Err() != nil {
				t.Errorf("batch %d: %v", b.ReadRecord().Batch, b.Err())
			}
			b.Release()
		}
		for _, err := range s.results() {
			if err != nil {
				t.Errorf("Submit: %v", err)
			}
		}
		if got := stats(t, s.Pipeline); got.Scratch.Failures < 3 || got.Scratch.Used != 0 {
			t.Errorf("%d refused, %d bytes still used; want 3 or more and none", got.Scratch.Failures, got.Scratch.Used)
		}
	})
}

// The batch that holds all scratch never comes back, because the device is lost. The waiting submissions must get an
// error.
func TestDeviceLostWhileBatchesWaitForScratch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.DeviceLoss, Nth: 1}}}))
		s := starve(t, d, 3, streams.Options{})
		s.open()
		for _, err := range s.results() {
			if !errors.Is(err, device.ErrLost) {
				t.Errorf("Submit = %v, want a lost device", err)
			}
		}
		if b := <-s.Completed(); b != s.first || !errors.Is(b.Err(), device.ErrLost) {
			t.Errorf("batch %d came back with %v, want the first batch and a lost device", b.ReadRecord().Batch, b.Err())
		}
		for _, b := range append(s.waiting, s.first) {
			b.Release()
		}
		if got, _ := s.Stats(); got.InHand != 0 || got.Lanes.InFlight != 0 {
			t.Errorf("%d batches not released and %d lanes in flight after every batch was released", got.InHand, got.Lanes.InFlight)
		}
	})
}

func TestCloseWhileBatchesWaitForScratch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		s := starve(t, d, 3, streams.Options{})
		if err := s.Close(); err != nil { // Close returns although the gate is closed
			t.Errorf("Close: %v", err)
		}
		for _, err := range s.results() {
			if !errors.Is(err, streams.ErrClosed) {
				t.Errorf("Submit = %v, want ErrClosed", err)
			}
		}
		for _, b := range s.waiting {
			b.Release()
		}
	})
}

// If lanes share streams, a batch that waits for scratch must not prevent batches with scratch from completing.
func TestWaitingForScratchOnSharedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.OutOfMemory, Nth: 2}, {Kind: sim.OutOfMemory, Nth: 3}}})
		p := newPipeline(t, d, streams.Options{Schedule: streams.DoubleBuffered, Operators: operators(t, "minhash?hashes=2")})
		rows := someRows(1, 5, 500)
		submit(t, p, rows)
		second := acquire(t, p, rows)
		said := make(chan error, 1)
		go func() { said <- second.Submit(streams.ClosedByBytes) }()
		first := <-p.Completed()
		first.Release()
		switch err := <-said; {
		case err == nil:
			(<-p.Completed()).Release()
		case errors.Is(err, device.ErrOutOfMemory): // both refusals occurred while no other batch was in flight
			second.Release()
		default:
			t.Errorf("Submit = %v", err)
		}
		synctest.Wait()
		if n := stats(t, p).InHand; n != 0 {
			t.Errorf("%d batches not released at the end", n)
		}
	})
}

// A batch may come back before its stream has freed its scratch, because the free follows the event at the end of the
// copy out. The next batch must wait for the free instead of failing for lack of memory.
func TestScratchThatIsStillOnItsWayBack(t *testing.T) {
	own := streams.Schedule{Name: "lane's own stream", Buffers: 1, Completion: streams.ByAdaptivePolling}
	mixed := streams.Schedule{Name: "shared streams for copies", Buffers: 1, Topology: streams.StreamBySize, SharedFrom: 1 << 30, Completion: streams.ByAdaptivePolling}
	for _, schedule := range []streams.Schedule{own, mixed} {
		d := &slowFrees{Device: openSim(t, sim.Options{Cost: sim.Units(unit)})}
		p := newPipeline(t, d, streams.Options{
			Lanes: 2, Schedule: schedule, Operators: operators(t, "minhash?hashes=2"), BatchBytes: 100 << 10, BatchPayloads: 8, ScratchLimit: 600 << 10,
		})
		for lane := range 2 {
			b := acquire(t, p, [][]byte{make([]byte, 100<<10)})
			if err := b.Submit(streams.ClosedByBytes); err != nil {
				t.Errorf("%s, lane %d: %v", schedule.Name, lane, err)
				b.Release()
				continue
			}
			(<-p.Completed()).Release()
		}
		if got := stats(t, p).Scratch; got.Failures == 0 || got.Allocations != 2 {
			t.Errorf("%s: %d allocations and %d refused, want 2 and some", schedule.Name, got.Allocations, got.Failures)
		}
	}
}

// slowFrees is a device whose streams run another operation before each free. That operation ends only when a caller
// waits for the stream.
type slowFrees struct{ *sim.Device }

func (s *slowFrees) NewPool(c device.PoolOptions) (device.Pool, error) {
	pool, err := s.Device.NewPool(c)
	return &slowPool{pool, s}, err
}

type slowPool struct {
	device.Pool
	dev *slowFrees
}

func (p *slowPool) Free(s device.Stream, m device.Memory) error {
	if _, err := p.dev.Gate(s); err != nil {
		return err
	}
	return p.Pool.Free(s, m)
}

// Scratch is freed on the batch's stream, after all other work of the batch on that stream.
func TestScratchIsTakenForEachBatchInStreamOrder(t *testing.T) {
	d := openSim(t, sim.Options{Cost: sim.Units(unit)})
	ops := operators(t, "minhash?hashes=4")
	p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: ops})
	kernels := operator.HostKernels()
	minhash, err := kernels[slices.IndexFunc(kernels, func(k device.HostKernel) bool { return k.Name() == "minhash" })].Bind(ops[0].Params())
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{10, 5000, 70000, 0, 300}
	for _, n := range sizes {
		submit(t, p, [][]byte{make([]byte, n)})
		b := <-p.Completed()
		needs := minhash.Needs(device.Shape{Rows: 1, Bytes: n, Longest: n})
		if got := b.ReadRecord().Scratch; got != needs.Scratch {
			t.Errorf("a batch of %d bytes took %d bytes of scratch, want the operator's %d", n, got, needs.Scratch)
		}
		b.Release()
	}
	trace := d.Trace()
	var frees, launches int
	for i, s := range trace {
		if s.Kind == software.Launch {
			launches++
		}
		if s.Kind != software.Free {
			continue
		}
		want := minhash.Needs(device.Shape{Rows: 1, Bytes: sizes[launches-1], Longest: sizes[launches-1]}).Scratch
		before, last := trace[i-2], trace[i-1]
		if s.Bytes != want || before.Kind != software.CopyOut || last.Kind != software.Record || last.Stream != s.Stream {
			t.Errorf("after %v and %v on %s, %d bytes were freed on %s; want %d, after the copy out and its event",
				before.Kind, last.Kind, last.Stream, s.Bytes, s.Stream, want)
		}
		frees++
	}
	got := stats(t, p).Scratch
	if frees != 4 || got.Allocations != 4 || got.Used != 0 { // the empty payload takes no scratch
		t.Errorf("%d frees, %d allocations, %d bytes used at the end; want 4, 4 and 0", frees, got.Allocations, got.Used)
	}
	if got.Reserved == 0 || got.Reserved > got.Limit {
		t.Errorf("the pool keeps %d bytes between batches, want some and at most %d", got.Reserved, got.Limit)
	}
}

// The high-water mark is the maximum that was allocated at any time. It stays after the memory is freed.
func TestTheHighWaterStays(t *testing.T) {
	pooled := openSim(t, sim.Options{Cost: sim.Units(unit)})
	for name, d := range map[string]device.Device{"pool": pooled, "preallocated": poolless{openSim(t, sim.Options{Cost: sim.Units(unit)})}} {
		p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "minhash?hashes=4")})
		maximum := int64(0)
		for _, bytes := range []int{100, 70000, 100} {
			submit(t, p, [][]byte{make([]byte, bytes)})
			b := <-p.Completed()
			maximum = max(maximum, int64(b.ReadRecord().Scratch))
			b.Release()
		}
		if got := stats(t, p).Scratch; got.Used != 0 || got.HighWater < maximum || maximum == 0 {
			t.Errorf("%s: %d bytes used at the end and a high-water mark of %d, want 0 and at least %d", name, got.Used, got.HighWater, maximum)
		}
	}
}

func TestScratchLimitBelowTheLargestBatchIsSaidAtOnce(t *testing.T) {
	_, err := streams.New(openSim(t, sim.Options{}), streams.Options{
		Lanes: 1, BatchBytes: 1 << 20, BatchPayloads: 10, ScratchLimit: 1 << 20, Operators: operators(t, "minhash"),
	})
	if !errors.Is(err, device.ErrInvalid) || !contains(err.Error(), "MILLRACE_SCRATCH_LIMIT") {
		t.Errorf("New = %v, want an error that names MILLRACE_SCRATCH_LIMIT", err)
	}
}

// A batch within the limit must not fail because the pool is full of unused pieces that are too small.
func TestLargeBatchAfterManySmallOnes(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		lanes := 4
		if testing.Short() {
			lanes = 2
		}
		p := newPipeline(t, d, streams.Options{
			Lanes: lanes, BatchBytes: 400 << 10, ScratchLimit: 2 << 20, Operators: operators(t, "minhash?hashes=1&k=4"),
		})
		for _, n := range []int{10, 50 << 10, 150 << 10, 400 << 10, 20, 400 << 10} {
			for range p.Slots() {
				submit(t, p, [][]byte{make([]byte, n)})
			}
			for range p.Slots() {
				b := <-p.Completed()
				if b.Err() != nil {
					t.Fatalf("a batch of %d bytes: %v", n, b.Err())
				}
				b.Release()
			}
		}
	})
}
