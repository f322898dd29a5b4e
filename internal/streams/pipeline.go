// Package streams is the pipeline: it keeps batches in flight on a device so that copy in, kernels and copy
// out of different batches overlap, and leaves a timeline of every batch. It knows neither NATS nor which kind
// of device it drives.
package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/alloc"
	"millrace/internal/device"
	"millrace/internal/operator"
)

// ErrClosed is returned once the pipeline is closed.
var ErrClosed = errors.New("streams: pipeline closed")

// Config says what a pipeline runs and how much of everything it may hold.
type Config struct {
	Lanes         int        // lanes in flight; at least 1. A Schedule may fix its own
	BatchBytes    int        // a batch's payload bytes at most, and so a payload's; at least 1, under 4 GiB
	BatchPayloads int        // payloads a batch at most; at least 1
	ScratchLimit  int64      // bytes the device's scratch pool may take
	Scratch       alloc.Mode // where scratch comes from; the zero Mode is a pool that keeps what it holds

	Operators []operator.Operator // run in this order over every batch; at least one
	Schedule  Schedule            // the zero Schedule is Overlapped
	Observer  Observer            // nil for none

	// Admit is asked before the pipeline takes its memory, and its error is New's; nil for no question. The scratch pool is made before, but takes
	// nothing yet.
	Admit func(Footprint) error

	// Spin is for how long a small batch that is alone on the device is asked about before the host waits
	// to be called: a call takes a GPU some 20 us, and asking costs a core meanwhile. 0 never asks.
	Spin time.Duration

	// Deadline bounds how long a batch may be in flight. The zero Deadline does not.
	Deadline Deadline

	// Ranges names batches and their stages on a profiler's timeline, where the device is a device.Ranger.
	// It takes a call to the device for each stage instead of one for the batch.
	Ranges bool

	// Copies has every batch copied, also one that the kernels would rather have in place: for a CPU, which wants all of
	// them so, to show what a pipeline on a GPU does.
	Copies bool
}

// Pipeline runs batches on one device. All methods are safe for concurrent use.
type Pipeline struct {
	dev      device.Device
	info     device.Info
	cfg      Config
	schedule Schedule
	kernels  []device.Kernel
	slab     *alloc.Slab
	scratch  *alloc.Counted
	lanes    []*lane
	shared   route           // the streams for each engine; none in StreamPerLane
	sharing  sync.Mutex      // keeps the work of two batches from interleaving there
	streams  []device.Stream // to close
	slots    []*Batch        // by Batch.Slot
	started  time.Duration

	freeSlots chan struct{}   // one token for each free batch
	completed chan *Batch     // room for every slot, so sending never blocks
	asked     chan flight     // batches whose event is to be asked; room for every slot likewise
	pending   []device.Stream // queues whose oldest batch has not ended, as the goroutine that asks found just now
	stop      context.CancelFunc
	ends      sync.WaitGroup // of the goroutines that complete batches
	asking    sync.WaitGroup // of the submissions that ask for the end of their batch
	over      chan struct{}  // closed when nothing can be submitted any more
	stuck     chan struct{}  // closed when the device counts as hung

	mu       sync.Mutex
	moved    *sync.Cond // a batch came to an end or was released, or the pipeline is over
	err      error      // why nothing can be submitted any more
	number   uint64     // batches acquired so far
	inHand   int        // acquired and not released
	inFlight int
	starved  int    // of those in flight, waiting for scratch on the host
	ended    uint64 // batches that left flight
	progress time.Time
	closed   bool
	hung     error         // why the device counts as hung; nil while it does not
	ran      time.Duration // how long the process has run, as far as the watch of deadlines saw
	usual    usualTimes

	engineFree [NumEngines]time.Duration // when each engine was done with the latest work placed
	activity   activity

	untimed []*Batch   // came back, and their times are still to be read; in that order. Guarded by mu
	timing  sync.Mutex // who reads times
	copies  []copyIn   // see place.go. Guarded by timing
	behind  uint64     // as lane.behind, for the stream that lanes share. Guarded by timing

	known known // of probes

	ranger     device.Ranger // nil: name nothing
	hostWaited atomic.Int64  // nanoseconds

	closing   sync.Once
	observing sync.Mutex
}

// New makes a pipeline on dev and takes all its memory: pinned double buffers, device buffers, a scratch
// pool. dev stays the caller's, who closes it after the pipeline. A device has one pipeline at a time, since
// its completions go to one place. If New fails it holds nothing.
func New(dev device.Device, cfg Config) (*Pipeline, error) {
	p := &Pipeline{
		dev: dev, info: dev.Info(), cfg: cfg, schedule: cfg.Schedule,
		over: make(chan struct{}), stuck: make(chan struct{}),
		started: dev.Now(), progress: time.Now(),
	}
	p.moved = sync.NewCond(&p.mu)
	if p.schedule.Buffers == 0 {
		p.schedule = Overlapped
	}
	if p.schedule.Lanes == 0 {
		p.schedule.Lanes = cfg.Lanes
	}
	if err := cfg.check(p.schedule); err != nil {
		return nil, err
	}
	if err := p.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("pipeline on %s: %w", p.info.ID, err), p.free())
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.ends.Go(func() { p.complete(ctx) })
	if p.schedule.Completion != ByNotify {
		p.ends.Go(func() { p.watch(ctx) })
	}
	if cfg.Deadline.Max != 0 {
		p.ends.Go(func() { p.watchDeadlines(ctx) })
	}
	return p, nil
}

func (c Config) check(s Schedule) error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("streams: "+format, args...))
		}
	}
	want(s.Lanes >= 1 && s.Lanes <= maxLanes, "%d lanes, want 1 to %d", s.Lanes, maxLanes)
	want(s.Streams != PerThreadDefault || s.Buffers == 1, "%d buffers a lane on per-thread default streams, want 1", s.Buffers)
	want(s.Buffers == 1 || s.Buffers == 2, "%d buffers a lane, want 1 or 2", s.Buffers)
	want(c.BatchBytes >= 1 && c.BatchBytes < 1<<32, "batch of %d bytes, want 1 to 4 GiB - 1: offsets are 32 bits wide", c.BatchBytes)
	want(c.BatchPayloads >= 1 && c.BatchPayloads < 1<<30, "batch of %d payloads, want 1 to 2^30 - 1", c.BatchPayloads)
	want(c.ScratchLimit >= 1, "scratch limit of %d bytes, want at least 1", c.ScratchLimit)
	want(len(c.Operators) > 0, "no operators")
	errs = append(errs, c.Deadline.check())
	return errors.Join(errs...)
}

// Slots is how many batches there are, in all phases together.
func (p *Pipeline) Slots() int { return len(p.slots) }

// Lanes is how many lanes there are.
func (p *Pipeline) Lanes() int { return len(p.lanes) }

// Device is what the pipeline runs on.
func (p *Pipeline) Device() device.Info { return p.info }

// BatchBytes is how many bytes a batch, and so a payload, can have.
func (p *Pipeline) BatchBytes() int { return p.cfg.BatchBytes }

// BatchPayloads is how many payloads a batch can have.
func (p *Pipeline) BatchPayloads() int { return p.cfg.BatchPayloads }

// Now is the time on the device's clock: what records are measured on.
func (p *Pipeline) Now() time.Duration { return p.dev.Now() }

// Epoch is the wall-clock time at which the device's clock read zero.
func (p *Pipeline) Epoch() time.Time { return p.dev.Epoch() }

// Completed is where submitted batches come back, with results or an error, in the order in which the
// device finished them. The receiver must Release each. It is never closed.
func (p *Pipeline) Completed() <-chan *Batch { return p.completed }

// Over is closed when nothing can be submitted any more: the device is lost or the pipeline closed. Err
// says which.
func (p *Pipeline) Over() <-chan struct{} { return p.over }

// Err is why nothing can be submitted any more: ErrClosed or an error that wraps device.ErrLost. It is nil
// while the pipeline works.
func (p *Pipeline) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Acquire returns an empty batch to fill, on an idle lane if there is one. It waits until a batch is free,
// ctx is done, or the pipeline has an Err. The batch is the caller's until Submit or Release.
func (p *Pipeline) Acquire(ctx context.Context) (*Batch, error) {
	if err := p.Reserve(ctx); err != nil {
		return nil, err
	}
	return p.Take()
}

// Reserve waits as Acquire does, and keeps a free batch for the caller, who must Take or Unreserve it. Who has several
// pipelines to give work to reserves before choosing the work, so that it goes to the one that is free.
func (p *Pipeline) Reserve(ctx context.Context) error {
	select {
	case <-p.freeSlots:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.over:
		return p.Err()
	}
}

// Unreserve gives a reservation back.
func (p *Pipeline) Unreserve() { p.freeSlots <- struct{}{} }

// Take is Acquire for who has reserved. It does not wait. It uses the reservation up, also where it fails because the
// pipeline has an Err.
func (p *Pipeline) Take() (*Batch, error) { return p.take(nil) }

// take is Take, for a probe where probe is not nil. A probe's batch has no number: those are for payloads.
func (p *Pipeline) take(probe *probing) (*Batch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		p.freeSlots <- struct{}{}
		return nil, p.err
	}
	b := p.pick()
	b.lane.move(b, filling)
	p.inHand++
	b.probe, b.copies = probe, false
	if probe != nil {
		b.reset(0)
		return b, nil
	}
	p.number++
	p.progress = time.Now()
	b.reset(p.number)
	return b, nil
}

// pick chooses a free batch on the lane with least to do, in turn. There is one, by the token taken.
func (p *Pipeline) pick() *Batch {
	var best *Batch
	bestBusy := 0
	for i := range p.lanes {
		l := p.lanes[(int(p.number)+i)%len(p.lanes)]
		busy, candidate := 0, (*Batch)(nil)
		for _, b := range l.batches {
			if b.phase == free {
				candidate = b
			} else {
				busy++
			}
		}
		if candidate != nil && (best == nil || busy < bestBusy) {
			best, bestBusy = candidate, busy
		}
	}
	if best == nil {
		panic("streams: a free batch was promised and there is none")
	}
	return best
}

// Release gives the batch's buffers back, completed or never submitted. The caller must not touch it
// afterwards: who still has stages to mark takes a copy of the Record first and gives it to Report.
func (b *Batch) Release() {
	p := b.pipe
	p.timeUpTo(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.lane.move(b, free)
	b.Owner = nil
	p.inHand--
	if b.probe == nil {
		p.progress = time.Now()
	}
	p.moved.Broadcast()
	p.freeSlots <- struct{}{} // there is room for every batch, so this never blocks
}

// Again takes a completed batch back to be submitted once more, with the payloads that it has, as if they had
// just been appended. It is the caller's as after Acquire, and its results are gone.
func (b *Batch) Again() {
	p := b.pipe
	p.timeUpTo(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.lane.move(b, filling)
	p.number++
	p.progress = time.Now()
	b.record = Record{Device: p.info.ID, Batch: p.number, Lane: b.lane.index}
	b.record.Stages[Fill].Start = p.dev.Now()
}

// Report hands the record of a batch that is finished in every respect to the observer.
func (p *Pipeline) Report(r *Record) {
	if p.cfg.Observer == nil {
		return
	}
	p.observing.Lock()
	defer p.observing.Unlock()
	p.cfg.Observer.BatchDone(r)
}

// Drain waits until no batch is in the caller's hand or in flight. It fails with ctx's error, and with ErrClosed
// where the pipeline is closed with batches out. Acquire works meanwhile: who drains stops acquiring first.
func (p *Pipeline) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.moved.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.inHand > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.closed {
			return ErrClosed
		}
		p.moved.Wait()
	}
	return nil
}

// Ended says whether err is the end of a pipeline: its device is lost, or one of them is closed.
func Ended(err error) bool {
	return errors.Is(err, device.ErrLost) || errors.Is(err, ErrClosed) || errors.Is(err, device.ErrClosed)
}
