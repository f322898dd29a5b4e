// Package streams runs batches of payloads on a device. A Pipeline keeps several batches in flight, so that the copy
// in, the kernels and the copy out of different batches overlap. It records the time of each stage of each batch.
//
// The worker (internal/ingest), the benchmarks (internal/bench) and the planner (internal/plan) use this package. The
// package depends neither on NATS nor on the kind of device.
//
// A caller acquires a batch, appends payloads, submits the batch, receives it from Pipeline.Completed, reads its
// results, and releases it. See the example of Pipeline. To read the code, start with this file, then batch.go (the
// caller's side), lane.go (states), submit.go (work on the device) and schedule.go.
package streams

import (
	"cmp"
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

// ErrClosed is the error of a pipeline that has been closed.
var ErrClosed = errors.New("streams: pipeline closed")

// Options configures a pipeline and limits its memory.
type Options struct {
	Lanes         int   // number of lanes, at least 1; ignored if Schedule fixes the number
	BatchBytes    int   // maximum payload bytes per batch, and also per payload; from 1 to 4 GiB - 1
	BatchPayloads int   // maximum payloads per batch; from 1 to 2^30 - 1
	ScratchLimit  int64 // maximum size of the device's scratch pool, in bytes

	Operators []operator.Operator // operators to run on every batch, in this order; at least one. Of a Stateful, its kernel runs.
	Schedule  Schedule            // the zero Schedule means Overlapped
	Observer  Observer            // receiver of device errors; nil means none

	// Admit can refuse the pipeline's memory before New allocates it. If Admit returns an error, New returns that
	// error. Only the empty scratch pool exists before the call. A nil Admit accepts everything.
	Admit func(Footprint) error

	// Spin is the time for which Submit polls a small batch that is alone on the device. After that time, the method in
	// Schedule.Completion applies. A GPU needs about 20 us for a notification, while polling occupies a core. 0 means
	// no polling.
	Spin time.Duration

	// Deadline bounds the time that a batch may be in flight. The zero Deadline sets no bound.
	Deadline Deadline

	// Ranges shows batches and their stages by name on a profiler's timeline, if the device is a device.Ranger. It
	// makes the pipeline enqueue each stage in a separate device call, instead of a whole batch in one call.
	Ranges bool

	// Copies forces every batch to be copied, even if kernels could use it in place. It makes a pipeline on a CPU
	// behave like one on a GPU.
	Copies bool
}

// Pipeline runs batches on one device. Its methods are safe for concurrent use.
type Pipeline struct {
	dev      device.Device
	info     device.Info
	o        Options
	schedule Schedule
	kernels  []device.Kernel
	slab     *alloc.Slab
	scratch  *alloc.Counted
	lanes    []*lane
	shared   route           // streams that lanes share, one per engine; zero in StreamPerLane
	sharing  sync.Mutex      // keeps the work of two batches from interleaving on the shared streams
	streams  []device.Stream // all streams, for Close
	slots    []*Batch        // indexed by Batch.Slot
	started  time.Duration

	freeSlots     chan struct{}   // one token per free batch
	completed     chan *Batch     // has capacity for every slot, so sending never blocks
	toPoll        chan polled     // batches whose event must be polled; has capacity for every slot
	pendingQueues []device.Stream // queues whose oldest batch is incomplete; used by sweep only
	stop          context.CancelFunc
	goroutines    sync.WaitGroup // goroutines that complete batches
	pollers       sync.WaitGroup // submissions that poll for the completion of their batch
	over          chan struct{}  // closed when the pipeline stops accepting batches
	stuck         chan struct{}  // closed when the device is found to hang

	mu       sync.Mutex
	changed  *sync.Cond // signals that a batch completed or was released, or that the pipeline is over
	err      error      // error that ended the pipeline, or nil
	endedAt  time.Time  // time at which the device was lost; zero if it wasn't lost
	number   uint64     // number of batches acquired so far
	inHand   int        // batches acquired and not released
	inFlight int
	starved  int    // submissions that wait for scratch
	ended    uint64 // number of batches in flight that completed, failed or were withdrawn
	lone     *Batch // batch that is computed in steps, alone on the device; or nil
	progress time.Time
	closed   bool
	hung     error         // error of a hung device, or nil
	ran      time.Duration // time that the process has run, as measured by watchDeadlines
	usual    usualTimes

	engineFree [NumEngines]time.Duration // end of each engine's latest work in the timeline
	activity   activity

	untimed []*Batch   // completed batches with unread timestamps, in order of completion; guarded by mu
	timing  sync.Mutex // held while timestamps are read
	copies  []copyIn   // copies in that may have ended (see place.go); guarded by timing
	behind  uint64     // counterpart of lane.behind for the shared copy-in stream; guarded by timing

	known func() *known // returns the payloads and expected results of probes, computed once

	ranger     device.Ranger // nil if ranges are off
	hostWaited atomic.Int64  // nanoseconds

	closing   sync.Once
	observing sync.Mutex
}

// New creates a pipeline on dev and allocates all its memory: pinned double buffers, device buffers and a scratch pool.
// The caller keeps dev and closes it after the pipeline. A device can have only one pipeline at a time, because only
// one goroutine may receive a device's completions. If New fails, it frees everything that it has allocated.
func New(dev device.Device, o Options) (*Pipeline, error) {
	o.Operators = operator.Kernels(o.Operators)
	p := &Pipeline{
		dev: dev, info: dev.Info(), o: o, schedule: o.Schedule,
		over: make(chan struct{}), stuck: make(chan struct{}),
		started: dev.Now(), progress: time.Now(),
	}
	p.changed = sync.NewCond(&p.mu)
	p.known = sync.OnceValue(o.knownAnswers)
	if p.schedule.Buffers == 0 {
		p.schedule = Overlapped
	}
	p.schedule.Lanes = cmp.Or(p.schedule.Lanes, o.Lanes)
	if err := o.check(p.schedule); err != nil {
		return nil, err
	}
	if err := p.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("pipeline on %s: %w", p.info.ID, err), p.free())
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.goroutines.Go(func() { p.complete(ctx) })
	if p.schedule.Completion == ByAdaptivePolling {
		p.goroutines.Go(func() { p.pollAll(ctx) })
	}
	if o.Deadline.Max != 0 {
		p.goroutines.Go(func() { p.watchDeadlines(ctx) })
	}
	return p, nil
}

func (o Options) check(s Schedule) error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("streams: "+format, args...))
		}
	}
	want(s.Lanes >= 1 && s.Lanes <= maxLanes, "%d lanes, want 1 to %d", s.Lanes, maxLanes)
	want(s.Buffers == 1 || s.Buffers == 2, "%d buffers a lane, want 1 or 2", s.Buffers)
	want(o.BatchBytes >= 1 && o.BatchBytes < 1<<32, "batch of %d bytes, want 1 to 4 GiB - 1: offsets are 32 bits wide", o.BatchBytes)
	want(o.BatchPayloads >= 1 && o.BatchPayloads < 1<<30, "batch of %d payloads, want 1 to 2^30 - 1", o.BatchPayloads)
	want(o.ScratchLimit >= 1, "scratch limit of %d bytes, want at least 1", o.ScratchLimit)
	want(len(o.Operators) > 0, "no operators")
	errs = append(errs, o.Deadline.check())
	return errors.Join(errs...)
}

// Slots returns the number of batches in all states.
func (p *Pipeline) Slots() int { return len(p.slots) }

// Lanes returns the number of lanes.
func (p *Pipeline) Lanes() int { return len(p.lanes) }

// Device returns the description of the pipeline's device.
func (p *Pipeline) Device() device.Info { return p.info }

// BatchBytes returns the maximum payload bytes of a batch, which also limits the size of a payload.
func (p *Pipeline) BatchBytes() int { return p.o.BatchBytes }

// BatchPayloads returns the maximum number of payloads in a batch.
func (p *Pipeline) BatchPayloads() int { return p.o.BatchPayloads }

// Now returns the time on the device's clock, which all records use.
func (p *Pipeline) Now() time.Duration { return p.dev.Now() }

// Epoch returns the wall-clock time at which the device's clock read zero.
func (p *Pipeline) Epoch() time.Time { return p.dev.Epoch() }

// Completed returns the channel that receives submitted batches with their results or an error, in the order in which
// the device finished them. The receiver must release each batch. The channel is never closed.
func (p *Pipeline) Completed() <-chan *Batch { return p.completed }

// Over returns a channel that is closed when the device is lost or the pipeline is closed. Err returns the reason. The
// Observer receives the error of a lost device before the channel is closed.
func (p *Pipeline) Over() <-chan struct{} { return p.over }

// Err returns the error that ended the pipeline: ErrClosed or an error that wraps device.ErrLost. It returns nil while
// the pipeline works.
func (p *Pipeline) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// LostAt returns the time at which the device was lost, or the zero time if it wasn't lost.
func (p *Pipeline) LostAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedAt
}

// Acquire returns an empty batch, on an idle lane if possible. It waits until a batch is free, ctx is done, or the
// pipeline is over. The caller owns the batch until Submit or Release.
func (p *Pipeline) Acquire(ctx context.Context) (*Batch, error) {
	if err := p.Reserve(ctx); err != nil {
		return nil, err
	}
	return p.Take()
}

// Reserve waits like Acquire and reserves a free batch. The caller must then call Take or Unreserve. A caller with
// several pipelines reserves before it chooses the work, so that the work goes to a pipeline with a free batch.
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

// Unreserve gives up a reservation.
func (p *Pipeline) Unreserve() { p.freeSlots <- struct{}{} }

// Take returns the reserved batch without waiting. If the pipeline is over, Take gives up the reservation and returns
// Err's error.
func (p *Pipeline) Take() (*Batch, error) { return p.take(nil) }

// take implements Take. With a non-nil probe, it takes a batch for that probe, which gets no batch number.
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

// pick chooses a free batch on the lane with the fewest batches in use. Ties go round robin. The caller's token from
// freeSlots guarantees a free batch.
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
		panic("streams: no free batch although one was reserved")
	}
	return best
}

// Release returns the buffers of a completed or never submitted batch to the pipeline. The caller must not use the
// batch or its Record afterwards.
func (b *Batch) Release() {
	p := b.pipe
	p.timeUpTo(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	b.lane.move(b, free)
	b.Owner, b.stepping, b.stepped, b.stepsEnd = nil, false, false, nil
	p.inHand--
	if b.probe == nil {
		p.progress = time.Now()
	}
	p.changed.Broadcast()
	p.freeSlots <- struct{}{} // the channel has capacity for every batch, so the send never blocks
}

// Again turns a completed batch into a filling batch with the same payloads, as if they had just been appended. It
// discards the results.
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

// Drain waits until all acquired batches have been released. It returns ctx's error if ctx ends first, and ErrClosed if
// the pipeline is closed first. Acquire still works during Drain, so stop acquiring before the call.
func (p *Pipeline) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
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
		p.changed.Wait()
	}
	return nil
}

// Ended reports whether err means that a pipeline has ended. A pipeline ends when its device is lost, or when the
// pipeline or the device is closed.
func Ended(err error) bool {
	return errors.Is(err, device.ErrLost) || errors.Is(err, ErrClosed) || errors.Is(err, device.ErrClosed)
}
