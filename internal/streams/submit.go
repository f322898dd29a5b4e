package streams

import (
	"errors"
	"fmt"
	"time"

	"millrace/internal/device"
)

// resultAlign is the alignment of operators' results on the device, in bytes (see device.LaunchArgs).
const resultAlign = 256

// Submit enqueues the batch's work on the device: allocating scratch, copying in, the operators' kernels, copying out,
// freeing scratch, and the completion. It doesn't wait for the work, except with Schedule.HostWaits. Pipeline.Completed
// receives the batch after its completion.
//
// If Submit fails, no part of the batch is in flight. The caller still owns the batch with its payloads, and must
// release it or submit it again. After an error that wraps device.ErrLost or ErrClosed, no submission can succeed.
//
// If there is no scratch, Submit waits until other batches in flight free theirs. It fails with device.ErrOutOfMemory
// only if no other batch in flight can free scratch.
//
// If a small batch is alone on the device, Submit polls it until it completes or Options.Spin has passed. Passing such a
// batch to another goroutine usually takes longer than the batch itself.
func (b *Batch) Submit(why CloseReason) error {
	if b.Rows() == 0 {
		return ErrEmpty
	}
	p := b.pipe
	f, err := b.submit(why)
	switch {
	case f == nil:
	case !f.until.IsZero():
		p.spin(*f)
	default:
		p.toPoll <- *f // the channel has capacity for every batch, so the send never blocks
	}
	return err
}

func (b *Batch) submit(why CloseReason) (*polled, error) {
	p, l := b.pipe, b.lane
	l.submitting.Lock()
	defer l.submitting.Unlock()
	if err := p.submitted(b, why); err != nil {
		return nil, err
	}
	err := b.enqueue()
	if err == nil {
		l.queued(b)
		// Once notify succeeds, the batch may complete at any moment, so this function must not use the batch.
		var f *polled
		if f, err = p.notify(b); err == nil {
			return f, nil
		}
	}
	// The work enqueued before the failure may still use the buffers.
	err = fmt.Errorf("batch %d: %w", b.record.Batch, err)
	if drained := p.drain(l); !Ended(err) {
		err = errors.Join(err, drained)
	}
	p.withdrawn(b, err)
	return nil, err
}

// plan sets the position of each operator's results and returns the memory needs of all launches. The scratch is the
// largest of any operator, because operators run one after another. The result space is the sum.
func (b *Batch) plan() (device.Needs, error) {
	all := device.Needs{InPlace: b.mappedIn.Bytes > 0 && !b.copies}
	shape := b.shape()
	b.results = b.results[:0]
	tooLarge := "" // name of an operator whose results alone don't fit
	for _, k := range b.pipe.kernels {
		n := k.Needs(shape)
		if n.Result > b.result.Bytes {
			tooLarge = k.Name()
		}
		all.Scratch = max(all.Scratch, n.Scratch)
		all.InPlace = all.InPlace && n.InPlace
		b.results = append(b.results, resultSpan{off: all.Result, len: n.Result})
		all.Result = alignUp(all.Result+n.Result, resultAlign)
	}
	b.record.Payloads, b.record.Bytes = b.Rows(), b.bytes
	b.record.ResultBytes, b.record.Scratch = all.Result, all.Scratch
	b.record.InPlace, b.inPlace = all.InPlace, all.InPlace
	if room := b.result.Bytes; all.Result > room {
		err := device.Errorf("plan batch", b.pipe.info.ID, device.ErrInvalid,
			"the results need %d bytes, but the result buffer has %d", all.Result, room)
		err.Operator = tooLarge
		return all, err
	}
	return all, nil
}

// enqueue puts the stages on the batch's streams. It makes one device call, because the device would wait if the host
// were interrupted between two calls. It makes more calls only if the host must act between stages.
func (b *Batch) enqueue() error {
	needs, err := b.plan()
	if err != nil {
		return err
	}
	shared := b.choose()
	scratch, err := b.allocScratch(needs.Scratch)
	if err != nil {
		return err
	}
	if shared {
		b.pipe.sharing.Lock()
		defer b.pipe.sharing.Unlock()
	}
	err = b.stages(needs, scratch)
	if scratch.Bytes > 0 {
		err = errors.Join(err, b.pipe.scratch.Free(b.route.kern, scratch))
	}
	return err
}

// choose sets the batch's streams and reports whether any of them is shared with other lanes.
func (b *Batch) choose() (shared bool) {
	p, l := b.pipe, b.lane
	b.route = l.own
	switch s := p.schedule; {
	case s.Topology == StreamPerStage:
		b.route = p.shared
	case s.Topology == StreamPerLane || b.inPlace:
	case b.bytes >= s.SharedFrom:
		b.route = p.shared
	case b.bytes >= s.CopiesFrom:
		b.route = route{p.shared.in, l.own.kern, p.shared.out}
	}
	p.queue(b)
	return b.route != l.own
}

func (b *Batch) stages(needs device.Needs, scratch device.Memory) error {
	r := b.route
	b.commands = b.commands[:0]
	region, table := b.seal()
	b.enqueued = b.pipe.dev.Now()
	if b.inPlace {
		if err := b.launches(table, scratch, b.mappedIn, b.mappedOut); err != nil {
			return err
		}
		b.recordEvent(r.out, b.copiedOut)
		return b.flush()
	}
	b.copyIn(region)
	if err := b.endOf(CopyIn, r.in); err != nil {
		return err
	}
	if err := b.compute(table, scratch); err != nil {
		return err
	}
	if err := b.endOf(Compute, r.kern); err != nil {
		return err
	}
	b.copyOut(needs)
	if err := b.endOf(CopyOut, r.out); err != nil {
		return err
	}
	return b.flush()
}

// copyIn adds a command that copies region to the device.
func (b *Batch) copyIn(region device.HostBuffer) {
	r := b.route
	b.recordEvent(r.in, b.start)
	b.add(device.Command{Kind: device.DoCopyIn, Stream: r.in, Memory: b.input, Host: region})
	b.recordEvent(r.in, b.copiedIn)
}

// compute adds the launches of the operators, which run one after another on the copied region.
func (b *Batch) compute(table int, scratch device.Memory) error {
	r := b.route
	b.after(r.kern, r.in, b.copiedIn)
	b.recordEvent(r.kern, b.computing)
	if err := b.launches(table, scratch, b.input, b.result); err != nil {
		return err
	}
	b.recordEvent(r.kern, b.computed)
	return nil
}

// copyOut adds a command that copies the records of all operators to the host.
func (b *Batch) copyOut(needs device.Needs) {
	r := b.route
	b.after(r.out, r.kern, b.computed)
	b.recordEvent(r.out, b.copyingOut)
	b.add(device.Command{Kind: device.DoCopyOut, Stream: r.out, Host: b.out, Memory: b.result.Slice(0, needs.Result)})
	b.recordEvent(r.out, b.copiedOut)
}

// launches adds the launch of each operator on the region at input. table is the position of the offsets table in the
// region. If the batch is computed in steps, launches waits after each launch.
func (b *Batch) launches(table int, scratch, input, result device.Memory) error {
	if b.stepping {
		if err := b.beginSteps(); err != nil {
			return err
		}
	}
	for i, k := range b.pipe.kernels {
		b.args[i] = device.LaunchArgs{
			Shape:   b.shape(),
			Rows:    input.Slice(0, b.bytes),
			Offsets: input.Slice(table, 4*len(b.offsets)),
			Scratch: scratch,
			Result:  result.Slice(b.results[i].off, b.results[i].len),
		}
		b.add(device.Command{Kind: device.DoLaunch, Stream: b.route.kern, Kernel: k, Args: &b.args[i]})
		if b.stepping {
			if err := b.step(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Batch) add(c device.Command) { b.commands = append(b.commands, c) }

// recordEvent adds a command that records e on s. It does nothing if e is nil, because the schedule doesn't use that
// event.
func (b *Batch) recordEvent(s device.Stream, e device.Event) {
	if e == nil {
		return
	}
	b.add(device.Command{Kind: device.DoRecord, Stream: s, Event: e})
}

// after makes work on s wait for e, an event on other. It does nothing if s and other are the same stream.
func (b *Batch) after(s, other device.Stream, e device.Event) {
	if s != other {
		b.add(device.Command{Kind: device.DoWait, Stream: s, Event: e})
	}
}

// flush passes the collected commands to the device.
func (b *Batch) flush() error {
	commands := b.commands
	b.commands = b.commands[:0]
	if len(commands) == 0 {
		return nil
	}
	return b.pipe.dev.Enqueue(commands)
}

// endOf is called after each stage. With profiler ranges, it enqueues the stage in a separate device call. With
// Schedule.HostWaits, it also waits for the stage. Otherwise it does nothing.
func (b *Batch) endOf(stage Stage, s device.Stream) error {
	p := b.pipe
	if !p.schedule.HostWaits && p.ranger == nil {
		return nil
	}
	defer p.rangeOf(stage.String())()
	if err := b.flush(); err != nil || !p.schedule.HostWaits {
		return err
	}
	start := time.Now()
	defer func() { p.hostWaited.Add(int64(time.Since(start))) }()
	return s.Synchronize()
}

// allocScratch allocates scratch in the order of the kernels' stream. If there is no scratch, it waits until other
// batches free theirs. The caller holds lane.submitting, so at most one batch per lane waits.
func (b *Batch) allocScratch(bytes int) (device.Memory, error) {
	if bytes == 0 {
		return device.Memory{}, nil
	}
	p := b.pipe
	for {
		seen := p.completions()
		m, err := p.scratch.Alloc(b.route.kern, bytes)
		if err == nil || !errors.Is(err, device.ErrOutOfMemory) {
			return m, err
		}
		came, err := p.awaitCompletion(b, seen)
		if err != nil {
			return device.Memory{}, err
		}
		if !came {
			return b.lastScratch(bytes)
		}
	}
}

// lastScratch makes a final attempt to allocate when no other batch can free scratch. It waits for pending frees,
// because a batch completes before its scratch is freed. It also trims the pool, which may be full of unused pieces of
// other sizes.
func (b *Batch) lastScratch(bytes int) (device.Memory, error) {
	if err := b.pipe.awaitFrees(); err != nil {
		return device.Memory{}, err
	}
	if err := b.pipe.scratch.Trim(0); err != nil {
		return device.Memory{}, err
	}
	return b.pipe.scratch.Alloc(b.route.kern, bytes)
}

// awaitFrees waits until the streams have freed all scratch. Call it only if no other work is queued on the streams.
func (p *Pipeline) awaitFrees() error {
	for _, s := range p.streams {
		if err := s.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}

// rangeOf opens a named range for a profiler and returns the function that closes it. A range such as "batch 7" lasts
// from submission to completion. Within it, the ranges "copy_in", "compute" and "copy_out" last while the host enqueues
// the stage of that name. The trace uses the same names.
func (p *Pipeline) rangeOf(name string) (end func()) {
	if p.ranger == nil {
		return func() {}
	}
	return p.ranger.Range(name)
}

// openRange opens the batch's profiler range, and closeRange closes it. The caller of both holds p.mu.
func (b *Batch) openRange() {
	if b.pipe.ranger != nil {
		b.ended = b.pipe.ranger.Range(fmt.Sprintf("batch %d", b.record.Batch))
	}
}

func (b *Batch) closeRange() {
	if b.ended != nil {
		b.ended()
		b.ended = nil
	}
}
