package streams_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/device/sim"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// deadline is the deadline of tests with synctest's virtual time.
var deadline = streams.Deadline{Min: 10 * time.Second, Max: 2 * time.Minute}

// quick is the deadline of tests with real time.
var quick = streams.Deadline{Min: 20 * time.Millisecond, Max: 50 * time.Millisecond}

// hangingSim returns a simulated device for tests that make it hang. Its pipelines free nothing, so the device can't be
// closed without leaks.
func hangingSim(t *testing.T, o sim.Options) *sim.Device {
	t.Helper()
	o.Kernels = operator.HostKernels()
	d, err := sim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hangingPipeline creates a pipeline that no cleanup closes, because its device may hang.
func hangingPipeline(t *testing.T, d device.Device, o streams.Options) *streams.Pipeline {
	t.Helper()
	o.BatchBytes, o.BatchPayloads, o.ScratchLimit = 100<<10, 100, 64<<20
	if o.Operators == nil {
		o.Operators = operators(t, "crc32c")
	}
	p, err := streams.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantHung(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, device.ErrHung) || !errors.Is(err, device.ErrKernelFault) || !errors.Is(err, device.ErrLost) {
		t.Errorf("%v: want an error that wraps ErrHung", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v: want %q in it", err, text)
		}
	}
}

// A batch that never completes ends the pipeline, even if other batches complete all the time, including batches on its
// lane.
func TestABatchThatNeverEndsIsNotHiddenByOthers(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &recorder{}
				d := hangingSim(t, sim.Options{Cost: sim.Units(unit), Faults: []sim.Fault{{Kind: sim.LostCompletion, Nth: 5}}})
				p := hangingPipeline(t, d, streams.Options{Lanes: lanes, Deadline: deadline, Observer: seen})
				began, good := time.Now(), 0
				for i := 1; ; i++ {
					b, err := p.Acquire(t.Context())
					if err != nil {
						break
					}
					b.Append([]byte("abc"))
					if err := b.Submit(streams.ClosedByBytes); err != nil {
						b.Release()
						break
					}
					if i == 5 {
						began = time.Now()
						continue
					}
					back := <-p.Completed()
					if back.Err() != nil {
						wantHung(t, back.Err())
						break
					}
					back.Release()
					good++
					time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the clock of a synctest bubble is virtual
				}
				if good < 50 {
					t.Errorf("%d batches came back while one hung, want as many as pass in %v", good, deadline.Min)
				}
				if took := time.Since(began); took < deadline.Min || took > deadline.Min+3*time.Second {
					t.Errorf("the pipeline ended %v after the batch was submitted, want about %v", took, deadline.Min)
				}
				wantHung(t, p.Err(), "batch 5 (1 payloads, 3 bytes, ", "crc32c", "the bound", "MILLRACE_BATCH_DEADLINE_MIN", "the device answers")
				if kinds := seen.errors(); len(kinds) != 1 || kinds[0] != "hung" {
					t.Errorf("device errors %v, want one hung", kinds)
				}
				if err := p.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

// Before the first batch has completed, the usual time of a batch is unknown, so the bound is the largest.
func TestTheFirstBatchHasTheLongestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := hangingSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LostCompletion, Nth: 1}}})
		p := hangingPipeline(t, d, streams.Options{Lanes: 1, Deadline: deadline})
		submit(t, p, someRows(1, 3, 10))
		time.Sleep(deadline.Max - time.Second) //nolint:forbidigo // the clock of a synctest bubble is virtual
		if f := p.Oldest(); f.Batch != 1 || f.Payloads != 3 || f.Bound != deadline.Max || f.Age < deadline.Max-2*time.Second || f.Age > f.Bound {
			t.Errorf("the batch in flight: %+v", f)
		}
		if p.Err() != nil {
			t.Fatalf("the pipeline ended too soon: %v", p.Err())
		}
		wantHung(t, (<-p.Completed()).Err())
		if f := p.Oldest(); f.Batch != 0 {
			t.Errorf("a completed batch is still in flight: %+v", f)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// Every way to detect completions is monitored, and no way makes Close or a submission wait. The device stands still
// until it is released.
func TestEveryCompletionIsWatched(t *testing.T) {
	for _, c := range []struct {
		name       string
		completion streams.Completion
		spin       time.Duration
		inPlace    int
	}{
		{"notify", streams.ByNotify, 0, 0}, {"adaptive polling", streams.ByAdaptivePolling, 0, 0},
		{"spin", streams.ByAdaptivePolling, time.Millisecond, 0}, {"in place", streams.ByAdaptivePolling, 0, 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := hangingSim(t, sim.Options{Cost: sim.Units(unit), MaxInPlace: c.inPlace})
			schedule := streams.Overlapped
			schedule.Completion = c.completion
			p := hangingPipeline(t, d, streams.Options{Lanes: 2, Schedule: schedule, Spin: c.spin, Deadline: quick})
			defer d.Hold()()
			b := submit(t, p, someRows(1, 3, 10))
			if back := <-p.Completed(); back != b {
				t.Fatal("another batch came back")
			}
			wantHung(t, b.Err())
			<-p.Over()
			if err := p.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			b.Release()
		})
	}
}

// endless is an operator of the host device that doesn't end until the test permits it.
type endless struct {
	operator.Operator
	marker byte // first byte of payloads that hang
	free   chan struct{}
}

func (e endless) Bind([]byte) (device.BoundHostKernel, error) { return e, nil }

func (e endless) Needs(s device.Shape) device.Needs {
	return device.Needs{Result: e.Stride() * s.Rows, Scratch: 4 * s.Bytes}
}

func (e endless) Run(rows []byte, offsets []uint32, _, _ []byte, _ device.Parallel) error {
	for i, end := range offsets[1:] {
		if row := rows[offsets[i]:end]; len(row) > 0 && row[0] == e.marker {
			<-e.free
		}
	}
	return nil
}

// hangingHost returns a host device whose kernels hang on payloads that begin with '!'. A call that waits for a hung
// stream returns only at the end of the test.
func hangingHost(t *testing.T, list string) (device.Device, []operator.Operator) {
	t.Helper()
	op := endless{operators(t, list)[0], '!', make(chan struct{})}
	d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{op}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(op.free)
		var leak *device.LeakError
		if err := d.Close(); err != nil && !errors.As(err, &leak) {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d, []operator.Operator{op}
}

// If a kernel doesn't end, its batch and the batches behind it come back. A submission that waits for its scratch
// returns. Close doesn't wait and frees no memory that the kernel may still write to.
func TestAKernelThatDoesNotEnd(t *testing.T) {
	shared := streams.Triple // the kernel hangs on a shared stream
	shared.CopiesFrom, shared.SharedFrom = 0, 400<<10
	for _, s := range []streams.Schedule{streams.Overlapped, shared} {
		t.Run(s.Name, func(t *testing.T) { kernelThatDoesNotEnd(t, s) })
	}
}

func kernelThatDoesNotEnd(t *testing.T, s streams.Schedule) {
	d, ops := hangingHost(t, "crc32c")
	p, err := streams.New(d, streams.Options{
		Lanes: 2, Schedule: s, BatchBytes: 400 << 10, BatchPayloads: 8, ScratchLimit: 2 << 20, Operators: ops, Deadline: quick, Copies: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 400<<10) // this payload needs almost all scratch
	large[0] = '!'
	hangs := submit(t, p, [][]byte{large})
	waits := acquire(t, p, [][]byte{make([]byte, 399<<10)})
	said := make(chan error, 1)
	go func() { said <- waits.Submit(streams.ClosedByBytes) }()
	if b := <-p.Completed(); b != hangs {
		t.Error("another batch came back")
	}
	wantHung(t, hangs.Err(), fmt.Sprintf("batch %d (1 payloads, %d bytes", 1, len(large)))
	wantHung(t, <-said)
	for _, b := range []*streams.Batch{hangs, waits} {
		b.Release()
	}
	if _, err := p.Acquire(t.Context()); !errors.Is(err, device.ErrHung) {
		t.Errorf("Acquire = %v, want an error, because the kernel may still write to every batch", err)
	}
	if s, err := p.Stats(); s.Pinned+s.Pageable == 0 || !errors.Is(err, device.ErrHung) {
		t.Errorf("Stats of a hung device: %+v, %v", s, err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if s, _ := p.Stats(); s.Pinned+s.Pageable == 0 {
		t.Error("Close freed memory that a kernel still writes to")
	}
}

// A call to a hung device may not return. Its submission is treated like a batch in flight: the other batches come
// back, and Close doesn't wait for it.
func TestASubmissionThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(hangingSim(t, sim.Options{}))
		p := hangingPipeline(t, d, streams.Options{Lanes: 2, Deadline: deadline})
		entered, resume := make(chan struct{}), make(chan struct{})
		d.inEnqueue = func([]device.Command) {
			close(entered)
			<-resume
		}
		b := acquire(t, p, [][]byte{{1}})
		said := make(chan error, 1)
		go func() { said <- b.Submit(streams.ClosedByBytes) }()
		<-entered
		<-p.Over()
		wantHung(t, p.Err())
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		select {
		case err := <-said:
			t.Errorf("Submit = %v while its call to the device has not returned", err)
		default:
		}
		close(resume)
		wantHung(t, <-said)
		b.Release()
	})
}

// If the device hangs during Close, Close returns an error once the bound has passed.
func TestCloseOfADeviceThatHangs(t *testing.T) {
	seen := &recorder{}
	d, ops := hangingHost(t, "crc32c")
	p := hangingPipeline(t, d, streams.Options{Lanes: 2, Operators: ops, Deadline: quick, Observer: seen})
	submit(t, p, [][]byte{[]byte("!")})
	if err := p.Close(); err != nil { // unless the bound had passed before Close
		wantHung(t, err)
	}
	wantHung(t, p.Hung())
	if kinds := seen.errors(); len(kinds) != 1 || kinds[0] != "hung" {
		t.Errorf("device errors %v, want one hung", kinds)
	}
}

// Batches that wait in a queue are not late. Only the first batch of the queue is timed, from the moment when it
// becomes the first. Here sixteen batches of 5 s each run one after another, which takes longer than the longest bound.
func TestAQueueOfSlowBatchesIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowOperator{operators(t, "crc32c")[0], 5 * time.Second}
		d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{slow}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeClean(t, d)
		p := newPipeline(t, struct{ device.Device }{d}, streams.Options{
			Lanes: 8, Operators: []operator.Operator{slow}, Deadline: streams.Deadline{Min: 6 * time.Second, Max: 8 * time.Second},
			Schedule: streams.Schedule{Name: "one queue", Buffers: 2, Topology: streams.StreamPerStage},
		})
		for range p.Slots() {
			submit(t, p, [][]byte{make([]byte, 100)})
		}
		for range p.Slots() {
			b := <-p.Completed()
			if b.Err() != nil {
				t.Fatal(b.Err())
			}
			b.Release()
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// The time of a small batch behind a large batch starts when the large batch ends, whatever their bounds.
func TestASmallBatchWaitsBehindALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := slowOperator{operators(t, "crc32c")[0], 0}
		d, err := host.Open(host.Options{Cores: 1, Kernels: []device.HostKernel{slow}})
		if err != nil {
			t.Fatal(err)
		}
		defer closeClean(t, d)
		p := newPipeline(t, struct{ device.Device }{d}, streams.Options{Lanes: 1, BatchBytes: 4 << 20, Operators: []operator.Operator{slow}, Deadline: deadline})
		for range 10 { // small batches take no time
			submit(t, p, [][]byte{{1}})
			(<-p.Completed()).Release()
		}
		large := submit(t, p, [][]byte{make([]byte, 4<<20)}) // 42 s
		small := submit(t, p, [][]byte{{1}})
		for _, want := range []*streams.Batch{large, small} {
			if got := <-p.Completed(); got != want || got.Err() != nil {
				t.Errorf("batch %d came back with %v", got.ReadRecord().Batch, got.Err())
			}
			want.Release()
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// slowOperator takes a fixed time for each batch, or 10 us for each byte if that is longer.
type slowOperator struct {
	operator.Operator
	takes time.Duration
}

func (s slowOperator) Bind([]byte) (device.BoundHostKernel, error) { return s, nil }

func (s slowOperator) Needs(shape device.Shape) device.Needs {
	return device.Needs{Result: s.Stride() * shape.Rows}
}

func (s slowOperator) Run(rows []byte, _ []uint32, _, _ []byte, _ device.Parallel) error {
	<-time.After(max(s.takes, time.Duration(len(rows))*10*time.Microsecond)) // bubble time
	return nil
}

// If the check finds that the device is lost, the pipeline's error is that loss. The loss may have another cause than a
// kernel.
func TestALossThatTheDeviceKnowsIsNoHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checked{Device: hangingSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LostCompletion, Nth: 1}}})}
		d.answer = device.Errorf("check", "sim-0", device.ErrLost, "fell off the bus")
		p := hangingPipeline(t, d, streams.Options{Lanes: 1, Deadline: deadline})
		b := submit(t, p, [][]byte{{1}})
		<-p.Completed()
		if err := b.Err(); errors.Is(err, device.ErrKernelFault) || !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "bus") {
			t.Errorf("%v: want the device's own loss", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A device that doesn't answer the check also counts as hung.
func TestADeviceThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checked{Device: hangingSim(t, sim.Options{Faults: []sim.Fault{{Kind: sim.LostCompletion, Nth: 1}}}), silent: true}
		p := hangingPipeline(t, d, streams.Options{Lanes: 1, Deadline: deadline})
		b := submit(t, p, [][]byte{{1}})
		<-p.Completed()
		wantHung(t, b.Err(), "no answer in time")
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A batch that completes during the check of the device is not a hang.
func TestABatchThatEndsAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &checked{Device: openSim(t, sim.Options{})}
		release := sync.OnceFunc(d.Device.(*sim.Device).Hold())
		p := newPipeline(t, d, streams.Options{Lanes: 1, Deadline: deadline, Operators: operators(t, "crc32c")})
		d.onCheck = func() { release(); synctest.Wait() }
		for range 2 {
			submit(t, p, [][]byte{{1}})
			b := <-p.Completed()
			if b.Err() != nil {
				t.Errorf("the batch failed: %v", b.Err())
			}
			b.Release()
		}
		if p.Err() != nil {
			t.Errorf("the pipeline ended: %v", p.Err())
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A batch that is computed in steps doesn't change the bound of other batches. Its time starts only after all operators
// except the last have run.
func TestABatchInStepsTeachesNoBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := hangingSim(t, sim.Options{Cost: sim.Units(unit)})
		p := hangingPipeline(t, d, streams.Options{Lanes: 1, Deadline: deadline})
		for _, c := range []struct{ steps, bounded bool }{{true, false}, {true, false}, {false, false}, {false, true}} {
			b := acquire(t, p, someRows(1, 3, 10))
			if c.steps {
				b.StepThrough(nil)
			}
			release := d.Hold() // keeps the batch in flight until its bound is read
			if err := b.Submit(streams.ClosedByCount); err != nil {
				t.Fatal(err)
			}
			if f := p.Oldest(); f.Batch == 0 || f.Bound < deadline.Max != c.bounded {
				t.Errorf("batch %d of 4 has the bound %v, want the largest, %v", f.Batch, f.Bound, deadline.Max)
			}
			release()
			(<-p.Completed()).Release()
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
