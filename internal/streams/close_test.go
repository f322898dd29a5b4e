package streams_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// onEachSchedule runs test for lanes with their own streams and for lanes that share streams.
func onEachSchedule(t *testing.T, test func(t *testing.T, s streams.Schedule)) {
	shared := streams.Schedule{Name: "stream per stage", Lanes: 2, Buffers: 2, Topology: streams.StreamPerStage}
	for _, s := range []streams.Schedule{streams.Serial, streams.Overlapped, shared, bySize()} {
		t.Run(s.Name, func(t *testing.T) { test(t, s) })
	}
}

// Close may be called during submissions. Each Submit then succeeds, or returns ErrClosed and leaves the batch to the
// caller. Device objects are not used after they are freed, which the host and sim devices would detect.
func TestCloseAmongSubmissions(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, s streams.Schedule) {
		onEachDevice(t, func(t *testing.T, d device.Device) {
			for range 30 {
				closeAmongSubmissions(t, newPipeline(t, d, streams.Options{Lanes: 3, Schedule: s, BatchBytes: 1024, Operators: operators(t, "crc32c")}))
			}
		})
	})
}

func closeAmongSubmissions(t *testing.T, p *streams.Pipeline) {
	t.Helper()
	var batches []*streams.Batch
	for range p.Slots() {
		batches = append(batches, acquire(t, p, [][]byte{[]byte("a payload")}))
	}
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for _, b := range batches {
		wg.Go(func() {
			<-begin
			switch err := b.Submit(streams.ClosedByLinger); {
			case errors.Is(err, streams.ErrClosed):
				b.Release()
			case err != nil:
				t.Errorf("Submit = %v, want ErrClosed", err)
			}
		})
	}
	close(begin)
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
}

// If a submission is in progress, Close waits for it before it frees anything.
func TestCloseWaitsForASubmission(t *testing.T) {
	onEachSchedule(t, func(t *testing.T, s streams.Schedule) {
		d := spyOn(openHost(t))
		entered, resume := make(chan struct{}), make(chan struct{})
		d.inAlloc = func() {
			close(entered)
			<-resume
		}
		p := newPipeline(t, d, streams.Options{Lanes: 2, Schedule: s, Operators: operators(t, "minhash?hashes=2")})
		b := acquire(t, p, someRows(1, 10, 100))
		said := make(chan error, 1)
		go func() { said <- b.Submit(streams.ClosedByLinger) }()
		<-entered
		var resumed atomic.Bool
		closed := make(chan error, 1)
		go func() {
			err := p.Close()
			if !resumed.Load() {
				err = errors.Join(err, errors.New("Close returned during a submission"))
			}
			closed <- err
		}()
		<-p.Over()
		for range 1000 {
			runtime.Gosched() // gives an early return a chance to show
		}
		resumed.Store(true)
		close(resume)
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-said; !errors.Is(err, streams.ErrClosed) {
			t.Errorf("Submit = %v, want ErrClosed", err)
		}
		b.Release()
	})
}

// A caller that owns a filled batch when the pipeline closes must get an error and not access freed memory.
func TestSubmitAfterCloseSaysSo(t *testing.T) {
	onEachDevice(t, func(t *testing.T, d device.Device) {
		p := newPipeline(t, d, streams.Options{})
		b := acquire(t, p, someRows(1, 3, 100))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Submit(streams.ClosedByDrain); !errors.Is(err, streams.ErrClosed) {
			t.Errorf("Submit = %v, want ErrClosed", err)
		}
		b.Release()
	})
}

func TestCloseIsNoDeviceError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recorder{}
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		p := starve(t, d, 1, streams.Options{Observer: seen})
		closed := make(chan error, 1)
		go func() { closed <- p.Close() }()
		for _, err := range p.results() {
			if !errors.Is(err, streams.ErrClosed) {
				t.Errorf("a batch that waits for scratch while the pipeline closes: %v, want ErrClosed", err)
			}
		}
		p.open()
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if kinds := seen.errors(); len(kinds) > 0 {
			t.Errorf("closing counted as device errors: %v", kinds)
		}
		p.waiting[0].Release()
	})
}

// Close waits for a stalled stream and frees nothing before the stream is done.
func TestCloseWaitsForAStalledStream(t *testing.T) {
	t.Run("copied", func(t *testing.T) {
		d := spyOn(openHost(t))
		closeOnAStalledStream(t, d, d)
	})
	t.Run("in place", func(t *testing.T) {
		d := openHost(t)
		s := spyOn(d)
		closeOnAStalledStream(t, mappingSpy{s, d.(device.Mapper)}, s)
	})
}

func closeOnAStalledStream(t *testing.T, on device.Device, d *spy) {
	t.Helper()
	p := newPipeline(t, on, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
	open := d.gate(t, "lane-0")
	defer open()
	for range p.Slots() {
		submit(t, p, someRows(1, 10, 100))
	}
	var opened atomic.Bool
	closed := make(chan error, 1)
	go func() {
		err := p.Close()
		if !opened.Load() {
			err = errors.Join(err, errors.New("Close returned while a stream was still busy"))
		}
		closed <- err
	}()
	<-p.Over()
	s, err := p.Stats()
	if err != nil || s.Pageable == 0 || s.Lanes.InFlight == 0 {
		t.Errorf("during Close: %+v, %v; want the memory still allocated and a lane in flight", s, err)
	}
	opened.Store(true)
	open()
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
	s, err = p.Stats()
	if !errors.Is(err, device.ErrClosed) {
		t.Errorf("Stats of a closed pipeline: %v, want its pool closed", err)
	}
	if s.Pinned != 0 || s.Pageable != 0 {
		t.Errorf("a closed pipeline holds %d pinned and %d pageable bytes", s.Pinned, s.Pageable)
	}
}

func TestDrainWaitsForAStalledStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := spyOn(openSim(t, sim.Options{Cost: sim.Units(unit)}))
		p := newPipeline(t, d, streams.Options{Lanes: 2, Operators: operators(t, "crc32c")})
		open := d.gate(t, "lane-0")
		stalled, free := submit(t, p, someRows(1, 5, 100)), submit(t, p, someRows(2, 5, 100))
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(context.Background()) }()
		if got := <-p.Completed(); got != free {
			t.Fatal("the stalled batch came back")
		}
		free.Release()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Fatalf("Drain = %v while a batch was on a stalled stream", err)
		default:
		}
		open()
		if got := <-p.Completed(); got != stalled {
			t.Fatal("another batch came back")
		}
		stalled.Release()
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// A Drain whose context ends must leave all batches in the pipeline.
func TestDrainThatIsGivenUpKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, openSim(t, sim.Options{}), streams.Options{Lanes: 2})
		held := acquire(t, p, nil)
		ctx, cancel := context.WithCancel(context.Background())
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-drained; !errors.Is(err, context.Canceled) {
			t.Fatalf("Drain = %v, want the context's error", err)
		}
		all := []*streams.Batch{held}
		for len(all) < p.Slots() {
			all = append(all, acquire(t, p, nil)) // synctest reports a deadlock if a batch is missing
		}
		for _, b := range all {
			b.Release()
		}
	})
}

func TestTwoDrainsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipeline(t, openSim(t, sim.Options{}), streams.Options{Lanes: 2})
		held := acquire(t, p, nil)
		drained := make(chan error)
		for range 2 {
			go func() { drained <- p.Drain(context.Background()) }()
		}
		synctest.Wait()
		held.Release()
		for range 2 {
			if err := <-drained; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDrainOfAClosedPipelineEnds(t *testing.T) {
	p := newPipeline(t, openHost(t), streams.Options{})
	held := acquire(t, p, nil)
	drained := make(chan error, 1)
	go func() { drained <- p.Drain(context.Background()) }()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; !errors.Is(err, streams.ErrClosed) {
		t.Errorf("Drain = %v, want ErrClosed", err)
	}
	held.Release()
}

// Stats may be read at any time: while batches move, while the pipeline closes, and afterwards.
func TestStatsWhileClosing(t *testing.T) {
	for range 10 {
		p := newPipeline(t, openHost(t), streams.Options{Operators: operators(t, "crc32c")})
		for range p.Slots() {
			submit(t, p, someRows(1, 50, 1000))
		}
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			wg.Go(func() { checkFigures(t, p, stop) })
		}
		for range p.Slots() / 2 {
			(<-p.Completed()).Release()
		}
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		close(stop)
		wg.Wait()
	}
}

// checkFigures reads a pipeline's Stats repeatedly until stop is closed, and once more afterwards.
func checkFigures(t *testing.T, p *streams.Pipeline, stop <-chan struct{}) {
	for last := false; !last; {
		select {
		case <-stop:
			last = true
		default:
		}
		s, err := p.Stats()
		if err != nil && !errors.Is(err, device.ErrClosed) && !errors.Is(err, device.ErrLost) {
			t.Errorf("Stats: %v", err)
		}
		if err := plausible(s, p.Slots()); err != nil {
			t.Error(err)
		}
	}
}

// plausible returns an error if a pipeline's Stats are impossible.
func plausible(s streams.Stats, slots int) error {
	for e, busy := range s.Engines {
		if busy < 0 || busy > s.Busy {
			return fmt.Errorf("engine %v was busy for %v, any for %v", streams.Engine(e), busy, s.Busy)
		}
	}
	switch {
	case s.Overlap > s.Busy || s.Busy > s.Counted || s.Counted > s.Uptime:
		return fmt.Errorf("overlap %v, busy %v, counted %v, up %v", s.Overlap, s.Busy, s.Counted, s.Uptime)
	case s.InHand < 0 || s.InHand > slots:
		return fmt.Errorf("%d batches not released of %d", s.InHand, slots)
	}
	return nil
}

// Close waits for a submission that polls its batch. It doesn't close the batch's event earlier, because that would
// look like a device error.
func TestCloseWaitsForASubmissionThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recorder{}
		d := &askedDevice{Device: openSim(t, sim.Options{})}
		p := newPipeline(t, d, streams.Options{Lanes: 1, Spin: time.Minute, Operators: operators(t, "crc32c"), Observer: seen})
		b := acquire(t, p, [][]byte{{1}})
		closed := make(chan error, 1)
		d.inDone = sync.OnceFunc(func() {
			go func() { closed <- p.Close() }()
			<-p.Over()
			time.Sleep(time.Second) //nolint:forbidigo // the clock of a synctest bubble is virtual; Close proceeds as far as it can
		})
		if err := b.Submit(streams.ClosedByBytes); err != nil {
			t.Errorf("Submit: %v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if kinds := seen.errors(); len(kinds) != 0 {
			t.Errorf("device errors %v, want none", kinds)
		}
		if got := <-p.Completed(); got != b || got.Err() != nil {
			t.Errorf("the batch came back with %v", got.Err())
		}
	})
}

// askedDevice calls inDone whenever one of its events is polled.
type askedDevice struct {
	device.Device
	inDone func()
}

func (a *askedDevice) NewEvent(flags device.EventFlags) (device.Event, error) {
	e, err := a.Device.NewEvent(flags)
	return &askedEvent{e, a}, err
}

// Enqueue replaces the wrapped events with the device's own events.
func (a *askedDevice) Enqueue(commands []device.Command) error {
	for i := range commands {
		if e, ok := commands[i].Event.(*askedEvent); ok {
			commands[i].Event = e.Event
		}
	}
	return a.Device.Enqueue(commands)
}

type askedEvent struct {
	device.Event
	dev *askedDevice
}

func (a *askedEvent) Done() (bool, error) {
	a.dev.inDone()
	return a.Event.Done()
}
