package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// Options configures a pipeline and limits its memory.
type Options struct {
	Lanes         int   // number of lanes, at least 1; ignored if Schedule fixes the number
	BatchBytes    int   // maximum payload bytes per batch, and also per payload; from 1 to 4 GiB - 1
	BatchPayloads int   // maximum payloads per batch; from 1 to 2^30 - 1
	ScratchLimit  int64 // maximum size of the device's scratch pool, in bytes

	Operators []operator.Operator // operators to run on every batch, in this order; at least one. A Stateful runs its kernel
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

// New creates a pipeline on dev and allocates all its memory: pinned double buffers, device buffers and a scratch pool.
// The caller keeps dev and closes it after the pipeline. A device can have only one pipeline at a time, because only
// one goroutine may receive a device's completions. If New fails, it frees everything that it has allocated.
func New(dev device.Device, o Options) (*Pipeline, error) {
	o.Operators = operator.Kernels(o.Operators)
	p := &Pipeline{
		dev: dev, info: dev.Info(), o: o, schedule: o.Schedule,
		over: make(chan struct{}), stuck: make(chan struct{}),
		started: dev.Now(), calls: map[*stateCall]struct{}{},
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

// build allocates the pipeline's kernels, memory, streams and events. If it fails, the caller must call free.
func (p *Pipeline) build() error {
	for _, op := range p.o.Operators {
		k, err := p.dev.Kernel(op.Name(), op.Params())
		if err != nil {
			return fmt.Errorf("operator %s: %w", op, err)
		}
		p.kernels = append(p.kernels, k)
	}
	region := alignUp(p.o.BatchBytes, tableAlign) + 4*(p.o.BatchPayloads+1)
	largest, err := p.largestNeeds()
	if err != nil {
		return err
	}
	p.scratch, err = NewScratch(p.dev, ScratchOptions{Limit: p.o.ScratchLimit, Piece: largest.Scratch})
	if err != nil {
		return err
	}
	if int64(largest.Scratch) > p.o.ScratchLimit {
		return device.Errorf("plan memory", p.info.ID, device.ErrInvalid,
			"the largest batch needs %d bytes of scratch, but the limit is %d: raise MILLRACE_SCRATCH_LIMIT or lower "+
				"MILLRACE_BATCH_BYTES", largest.Scratch, p.o.ScratchLimit)
	}
	// With preallocated scratch, each lane's stream and the shared compute stream may each hold one piece.
	if pieces := int64(p.schedule.Lanes+1) * int64(largest.Scratch); p.scratch.Instead() != nil && pieces > p.o.ScratchLimit {
		return device.Errorf("plan memory", p.info.ID, device.ErrInvalid,
			"this GPU has no memory pools, so scratch for %d lanes needs %d bytes in total, but the limit is %d: raise "+
				"MILLRACE_SCRATCH_LIMIT or lower MILLRACE_LANES or MILLRACE_BATCH_BYTES", p.schedule.Lanes, pieces, p.o.ScratchLimit)
	}
	results := max(largest.Result, resultAlign)
	batches := p.schedule.Lanes * p.schedule.Buffers
	l := layout{Buffers: batches, InBytes: region, OutBytes: results}
	if err := p.admit(l, largest); err != nil {
		return err
	}
	p.slab, err = newSlab(p.dev, l)
	if err != nil {
		return err
	}
	if err := p.sharedStreams(); err != nil {
		return err
	}
	for i := range p.schedule.Lanes {
		if err := p.addLane(i, region, results); err != nil {
			return fmt.Errorf("lane %d: %w", i, err)
		}
	}
	p.freeSlots = make(chan struct{}, batches)
	p.completed = make(chan *Batch, batches)
	p.toPoll = make(chan polled, batches)
	if p.o.Ranges {
		p.ranger, _ = p.dev.(device.Ranger)
	}
	for range batches {
		p.freeSlots <- struct{}{}
	}
	return nil
}

// largestNeeds returns the scratch and result space for the largest batch that the bounds allow. It returns an error if
// an operator can't compute such a batch.
func (p *Pipeline) largestNeeds() (all device.Needs, err error) {
	shape := device.Shape{Rows: p.o.BatchPayloads, Bytes: p.o.BatchBytes, Longest: p.o.BatchBytes}
	for _, k := range p.kernels {
		n := k.Needs(shape)
		if n.Result == 0 {
			return all, device.Attribute(device.Errorf("plan memory", p.info.ID, device.ErrInvalid,
				"it can't compute a batch of %d payloads and %d bytes: lower MILLRACE_BATCH_PAYLOADS or MILLRACE_BATCH_BYTES", shape.Rows, shape.Bytes), k.Name())
		}
		all.Scratch = max(all.Scratch, n.Scratch)
		all.Result = alignUp(all.Result+n.Result, resultAlign)
	}
	return all, nil
}

// sharedStreams creates the streams that lanes share, if the topology has shared streams.
func (p *Pipeline) sharedStreams() (err error) {
	if p.schedule.Topology == StreamPerLane {
		return nil
	}
	if p.shared.in, err = p.newStream(CopyInEngine.String()); err != nil {
		return err
	}
	if p.shared.kern, err = p.newStream(ComputeEngine.String()); err != nil {
		return err
	}
	p.shared.out, err = p.newStream(CopyOutEngine.String())
	return err
}

func (p *Pipeline) newStream(name string) (device.Stream, error) {
	s, err := p.dev.NewStream(name)
	if err == nil {
		p.streams = append(p.streams, s)
	}
	return s, err
}

func (p *Pipeline) addLane(i, region, results int) error {
	l := &lane{index: i, idle: make(chan struct{}, 1)}
	p.lanes = append(p.lanes, l)
	if p.schedule.Topology != StreamPerStage {
		s, err := p.newStream(fmt.Sprintf("lane-%d", i))
		if err != nil {
			return err
		}
		l.own = route{s, s, s}
	}
	for range p.schedule.Buffers {
		if err := p.addBatch(l, region, results); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pipeline) addBatch(l *lane, region, results int) (err error) {
	slot := len(p.slots)
	b := &Batch{
		pipe: p, lane: l, slot: slot, in: p.slab.in(slot), out: p.slab.out(slot),
		offsets: make([]uint32, 0, p.o.BatchPayloads+1),
		args:    make([]device.LaunchArgs, len(p.kernels)),
		results: make([]resultSpan, 0, len(p.kernels)),
	}
	p.slots = append(p.slots, b)
	l.batches = append(l.batches, b)
	if b.input, err = p.dev.Alloc(region); err != nil {
		return err
	}
	if b.result, err = p.dev.Alloc(results); err != nil {
		return err
	}
	if err := b.mapBuffers(); err != nil {
		return err
	}
	for _, e := range b.events() {
		event, err := p.dev.NewEvent(device.Timed)
		if err != nil {
			return err
		}
		*e = event
	}
	return nil
}

// mapBuffers makes the batch's host buffers accessible to kernels. It does nothing if the device can't map host memory,
// if the schedule separates the stages, or if Options.Copies is set.
func (b *Batch) mapBuffers() (err error) {
	m, ok := b.pipe.dev.(device.Mapper)
	if s := b.pipe.schedule; !ok || s.HostWaits || s.Topology == StreamPerStage || b.pipe.o.Copies {
		return nil
	}
	if b.mappedIn, err = m.Map(b.in); err != nil {
		return err
	}
	b.mappedOut, err = m.Map(b.out)
	return err
}

// events returns the batch's events in stage order.
func (b *Batch) events() []*device.Event {
	if b.pipe.schedule.HostWaits {
		return []*device.Event{&b.start, &b.copiedIn, &b.computing, &b.computed, &b.copyingOut, &b.copiedOut}
	}
	return []*device.Event{&b.copiedIn, &b.computed, &b.copiedOut}
}

// admit passes the pipeline's footprint to Options.Admit before the memory is allocated.
func (p *Pipeline) admit(slab layout, largest device.Needs) error {
	if p.o.Admit == nil {
		return nil
	}
	f := Footprint{
		Host:    slab.total(),
		Device:  int64(slab.Buffers) * int64(slab.InBytes+slab.OutBytes),
		Scratch: min(int64(slab.Buffers)*int64(largest.Scratch), p.o.ScratchLimit),
	}
	if err := p.o.Admit(f); err != nil {
		return fmt.Errorf("memory for %d batches: %w", slab.Buffers, err)
	}
	return nil
}

// Footprint is an upper bound for the memory that a pipeline uses, in bytes.
type Footprint struct {
	Host    int64 // host memory for batch buffers; pinned if the device can pin memory
	Device  int64 // device memory for batch buffers
	Scratch int64 // device memory for scratch; at most Options.ScratchLimit
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

// Close waits until the device has finished the pipeline's work, and then frees all memory. The caller must neither
// wait for batches in flight nor fill or read a batch afterwards. If a Submit call in progress returns ErrClosed, the
// caller still owns the batch and may release it. If the device was lost earlier, Close returns nil, because Err
// already returns that error. A second Close waits for the first and returns nil.
//
// On a hung device (see Options.Deadline), Close neither waits nor frees anything. The device may still use the memory,
// and a call to the device might never return. The caller must end the process. If the pipeline detects a hang during
// Close, Close returns the error of Hung.
func (p *Pipeline) Close() (err error) {
	p.closing.Do(func() { err = p.close() })
	return err
}

func (p *Pipeline) close() error {
	p.mu.Lock()
	p.closed = true
	lost, hung := p.err != nil, p.hung != nil
	if !lost {
		p.err = ErrClosed
		close(p.over)
	}
	p.changed.Broadcast()
	p.mu.Unlock()

	var err error
	switch {
	case hung:
		p.stop()
	case p.o.Deadline.Max == 0:
		err = p.windDown()
	default:
		done := make(chan error, 1)
		go func() { done <- p.windDown() }()
		select {
		case err = <-done:
		case <-p.stuck:
			p.stop()
			err = p.Hung()
		}
	}
	if lost {
		return nil
	}
	return err
}

// windDown waits until the device has finished the pipeline's work, and then frees the pipeline's memory.
func (p *Pipeline) windDown() error {
	var errs []error
	for _, l := range p.lanes {
		errs = append(errs, p.drainLane(l))
	}
	p.pollers.Wait()
	p.stop()
	p.goroutines.Wait()
	if err := p.Hung(); err != nil {
		return err
	}
	p.timeUpTo(nil) // while the events still exist
	return errors.Join(append(errs, p.free())...)
}

// drainLane waits until a submission in progress has ended and the device has finished the lane's work. No new
// submission can start, because the pipeline is over.
func (p *Pipeline) drainLane(l *lane) error {
	l.submitting.Lock()
	defer l.submitting.Unlock()
	return p.drain(l)
}

// free releases everything that build allocated. No batch may be in flight.
func (p *Pipeline) free() error {
	var errs []error
	for _, b := range p.slots {
		for _, e := range b.events() {
			if *e != nil {
				errs = append(errs, (*e).Close())
			}
		}
	}
	for _, s := range p.streams {
		errs = append(errs, s.Close())
	}
	for _, b := range p.slots {
		for _, m := range []device.Memory{b.input, b.result} {
			if m.Bytes > 0 {
				errs = append(errs, p.dev.Free(m))
			}
		}
	}
	if p.slab != nil {
		errs = append(errs, p.slab.close())
	}
	if p.scratch != nil {
		errs = append(errs, p.scratch.Close())
	}
	for _, k := range p.kernels {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}
