package streams_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// onEachDevice runs test on the host device, on a simulated GPU and on a GPU, because the scheduling code is the same.
func onEachDevice(t *testing.T, test func(t *testing.T, d device.Device)) {
	t.Run("host", func(t *testing.T) { test(t, openHost(t)) })
	t.Run("host, copied", func(t *testing.T) { test(t, openCopyingHost(t)) })
	t.Run("sim", func(t *testing.T) { test(t, openSim(t, sim.Options{Cost: sim.Units(10 * time.Microsecond)})) })
	t.Run("cuda", func(t *testing.T) { test(t, openCUDA(t)) })
}

func TestEveryScheduleGivesTheReferencesResults(t *testing.T) {
	maximum, ops := 3000, operators(t, "crc32c,minhash?k=5&hashes=7") // maximum is for random payloads, in bytes; the sets have larger payloads
	if testing.Short() {
		maximum, ops = 300, operators(t, "crc32c,minhash?k=5&hashes=1")
	}
	batches := map[int]*expected{} // indexed by number; batches with the same number are the same for each schedule and device
	batch := func(n int) *expected {
		if batches[n] == nil {
			rows := someRows(uint64(n), 50+n, maximum)
			if sets := []func() [][]byte{
				func() [][]byte { return corpus.Adversarial(1) }, func() [][]byte { return corpus.Empties(8192) }, func() [][]byte { return corpus.Mixed(2) },
			}; n < len(sets) {
				rows = sets[n]()
			}
			batches[n] = expect(ops, rows)
		}
		return batches[n]
	}
	for _, s := range []streams.Schedule{streams.Serial, streams.DoubleBuffered, streams.Overlapped, streams.Triple} {
		t.Run(s.Name, func(t *testing.T) {
			onEachDevice(t, func(t *testing.T, d device.Device) {
				p := newPipeline(t, d, streams.Options{Schedule: s, Operators: ops, BatchBytes: 2 << 20, BatchPayloads: 16384})
				want := map[int]*expected{}
				taken := 0
				take := func() {
					b := <-p.Completed()
					want[b.Slot()].check(t, b)
					delete(want, b.Slot())
					b.Release()
					taken++
				}
				for n := range 3 * p.Slots() {
					if len(want) == p.Slots() {
						take()
					}
					b := acquire(t, p, batch(n).rows)
					want[b.Slot()] = batch(n)
					if err := b.Submit(streams.ClosedByBytes); err != nil {
						t.Fatal(err)
					}
				}
				for len(want) > 0 {
					take()
				}
				if taken != 3*p.Slots() {
					t.Errorf("%d batches came back, %d were submitted", taken, 3*p.Slots())
				}
			})
		})
	}
}

func TestBatchBounds(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{BatchBytes: 100, BatchPayloads: 3})
	b := acquire(t, p, [][]byte{make([]byte, 60)})
	if b.Append(make([]byte, 41)) {
		t.Error("a payload beyond the byte bound was accepted")
	}
	if b.Rows() != 1 || b.Bytes() != 60 {
		t.Errorf("a refused payload left %d rows and %d bytes, want 1 and 60", b.Rows(), b.Bytes())
	}
	if _, full := b.IsFull(); full {
		t.Error("IsFull is true although space is left")
	}
	if !b.Append(make([]byte, 40)) {
		t.Error("a payload that fits exactly was refused")
	}
	if why, full := b.IsFull(); !full || why != streams.ClosedByBytes {
		t.Errorf("Full() = %v, %v, want bytes", why, full)
	}
	b.Release()

	b = acquire(t, p, [][]byte{{}, {1}, {}})
	if b.Append(nil) {
		t.Error("a payload beyond the count bound was accepted")
	}
	if why, full := b.IsFull(); !full || why != streams.ClosedByCount {
		t.Errorf("Full() = %v, %v, want count", why, full)
	}
	b.Release()
}

func TestEmptyBatchIsRefusedAndStaysTheCallers(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{})
	b := acquire(t, p, nil)
	if err := b.Submit(streams.ClosedByLinger); !errors.Is(err, streams.ErrEmpty) {
		t.Errorf("Submit = %v, want ErrEmpty", err)
	}
	b.Release()
}

func TestAcquireWaitsForARelease(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{Lanes: 1, Schedule: streams.Serial})
	held := acquire(t, p, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Acquire with nothing free = %v, want the context's error", err)
	}
	got := make(chan error, 1)
	go func() {
		b, err := p.Acquire(context.Background())
		if err == nil {
			b.Release()
		}
		got <- err
	}()
	held.Release()
	if err := <-got; err != nil {
		t.Errorf("Acquire after a release: %v", err)
	}
}

func TestAcquirePrefersAnIdleLane(t *testing.T) {
	d := openHost(t)
	p := newPipeline(t, d, streams.Options{Lanes: 2})
	first, second := acquire(t, p, nil), acquire(t, p, nil)
	if a, b := first.ReadRecord().Lane, second.ReadRecord().Lane; a == b {
		t.Errorf("both batches are on lane %d while the other lane is free", a)
	}
	first.Release()
	second.Release()
}

func TestClosedPipelineSaysSo(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Acquire(context.Background()); !errors.Is(err, streams.ErrClosed) {
		t.Errorf("Acquire = %v, want ErrClosed", err)
	}
	select {
	case <-p.Over():
	default:
		t.Error("Over is not closed")
	}
}

func TestCloseWithWorkInFlight(t *testing.T) {
	d := openHost(t)
	p := newPipeline(t, d, streams.Options{})
	for range p.Slots() {
		submit(t, p, someRows(1, 100, 1000))
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestDrainWaitsForEveryBatch(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{})
	b := submit(t, p, someRows(1, 10, 1000))
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	if got := <-p.Completed(); got != b {
		t.Fatal("another batch came back")
	}
	select {
	case err := <-drained:
		t.Errorf("Drain returned while the caller owned a batch (error %v)", err)
	default:
	}
	b.Release()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	acquire(t, p, nil).Release() // the pipeline still works
}

func TestBadConfigNamesEveryProblem(t *testing.T) {
	_, err := streams.New(openHost(t), streams.Options{})
	if err == nil {
		t.Fatal("New accepted empty options")
	}
	for _, want := range []string{"0 lanes", "batch of 0 bytes", "batch of 0 payloads", "no operators"} {
		if !contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}
}

func TestFailedNewHoldsNothing(t *testing.T) {
	d := openSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.PinnedOutOfMemory, Nth: 1}}})
	_, err := streams.New(d, streams.Options{
		Lanes: 2, BatchBytes: 1 << 20, BatchPayloads: 10, ScratchLimit: 4 << 20, Operators: operators(t, "crc32c"),
	})
	if !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("New = %v, want out of memory", err)
	}
	// openSim's cleanup fails the test if there is a leak
}
