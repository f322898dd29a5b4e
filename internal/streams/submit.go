package streams

import (
	"errors"
	"fmt"
	"time"

	"millrace/internal/device"
)

// resultAlign is how operators' results are aligned on the device (device.LaunchArgs).
const resultAlign = 256

// Submit hands the batch to the device: scratch in stream order, copy in, the operators' kernels, copy out, scratch
// back, and a completion, all enqueued without waiting (but see Schedule.HostWaits). The batch
// comes back through Pipeline.Completed.
//
// If Submit fails the batch stays with the caller, filled as it was, nothing of it in flight; the caller may
// submit it again unless the error wraps device.ErrLost or ErrClosed, or must release it.
//
// A batch that gets no scratch waits for others in flight to give theirs back, and fails with
// device.ErrOutOfMemory only when there are none.
//
// A small batch that is alone on the device is asked about until it is finished or Config.Spin has passed, before
// Submit returns: handing that to another goroutine would take longer than most of them do.
func (b *Batch) Submit(why CloseReason) error {
	if b.Rows() == 0 {
		return ErrEmpty
	}
	p := b.pipe
	f, err := b.submit(why)
	switch {
	case f == nil:
	case !f.until.IsZero():
		p.await(*f)
	default:
		p.asked <- *f // there is room for every batch, so this never blocks
	}
	return err
}

func (b *Batch) submit(why CloseReason) (*flight, error) {
	p, l := b.pipe, b.lane
	l.submitting.Lock()
	defer l.submitting.Unlock()
	if err := p.submitted(b, why); err != nil {
		return nil, err
	}
	err := b.enqueue()
	if err == nil {
		l.queued(b)
		// From the next call on the batch may come back at any moment and is not ours to touch.
		var f *flight
		if f, err = p.notify(b); err == nil {
			return f, nil
		}
	}
	// What was enqueued before the failure may still use the buffers.
	err = errors.Join(fmt.Errorf("batch %d: %w", b.record.Batch, err), p.drain(l))
	p.withdrawn(b, err)
	return nil, err
}

// plan lays out the operators' results and says what the launches need: scratch for the one that needs
// most, since they run one after another, and result room for all.
func (b *Batch) plan() (device.Needs, error) {
	all := device.Needs{InPlace: b.mappedIn.Bytes > 0 && !b.copies}
	shape := b.shape()
	b.results = b.results[:0]
	for _, k := range b.pipe.kernels {
		n := k.Needs(shape)
		all.Scratch = max(all.Scratch, n.Scratch)
		all.InPlace = all.InPlace && n.InPlace
		b.results = append(b.results, resultSpan{off: all.Result, len: n.Result})
		all.Result = alignUp(all.Result+n.Result, resultAlign)
	}
	b.record.Payloads, b.record.Bytes = b.Rows(), b.bytes
	b.record.ResultBytes, b.record.Scratch = all.Result, all.Scratch
	b.record.InPlace, b.inPlace = all.InPlace, all.InPlace
	if room := b.result.Bytes; all.Result > room {
		return all, device.Errorf("plan batch", b.pipe.info.ID, device.ErrInvalid,
			"its results take %d bytes and the largest batch was said to take %d", all.Result, room)
	}
	return all, nil
}

// enqueue puts the stages on the lane's streams, in one call to the device where nothing has to come between
// them: each call that the host makes by itself is a chance for it to be interrupted while the device waits.
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

// choose sets the streams that the batch goes to, and says whether other lanes use them too.
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
		b.launches(table, scratch, b.mappedIn, b.mappedOut)
		b.mark(r.out, b.copiedOut)
		return b.flush()
	}
	b.copyIn(region)
	if err := b.endOf(CopyIn, r.in); err != nil {
		return err
	}
	b.compute(table, scratch)
	if err := b.endOf(Compute, r.kern); err != nil {
		return err
	}
	b.copyOut(needs)
	if err := b.endOf(CopyOut, r.out); err != nil {
		return err
	}
	return b.flush()
}

// copyIn moves the region to the device.
func (b *Batch) copyIn(region device.HostBuffer) {
	r := b.route
	b.mark(r.in, b.start)
	b.add(device.Command{Kind: device.DoCopyIn, Stream: r.in, Memory: b.input, Host: region})
	b.mark(r.in, b.copiedIn)
}

// compute runs the operators one after another on what was copied in.
func (b *Batch) compute(table int, scratch device.Memory) {
	r := b.route
	b.after(r.kern, r.in, b.copiedIn)
	b.mark(r.kern, b.computing)
	b.launches(table, scratch, b.input, b.result)
	b.mark(r.kern, b.computed)
}

// copyOut moves all operators' records to the host.
func (b *Batch) copyOut(needs device.Needs) {
	r := b.route
	b.after(r.out, r.kern, b.computed)
	b.mark(r.out, b.copyingOut)
	b.add(device.Command{Kind: device.DoCopyOut, Stream: r.out, Host: b.out, Memory: b.result.Slice(0, needs.Result)})
	b.mark(r.out, b.copiedOut)
}

// launches runs the operators over the region at input.
func (b *Batch) launches(table int, scratch, input, result device.Memory) {
	for i, k := range b.pipe.kernels {
		b.args[i] = device.LaunchArgs{
			Shape:   b.shape(),
			Rows:    input.Slice(0, b.bytes),
			Offsets: input.Slice(table, 4*len(b.offsets)),
			Scratch: scratch,
			Result:  result.Slice(b.results[i].off, b.results[i].len),
		}
		b.add(device.Command{Kind: device.DoLaunch, Stream: b.route.kern, Kernel: k, Args: &b.args[i]})
	}
}

func (b *Batch) add(c device.Command) { b.commands = append(b.commands, c) }

// mark records e on s, if the schedule has that mark.
func (b *Batch) mark(s device.Stream, e device.Event) {
	if e == nil {
		return
	}
	b.add(device.Command{Kind: device.DoRecord, Stream: s, Event: e})
}

// after makes work on s wait for e, which was recorded on other. On one stream the order is there already.
func (b *Batch) after(s, other device.Stream, e device.Event) {
	if s != other {
		b.add(device.Command{Kind: device.DoWait, Stream: s, Event: e})
	}
}

// flush hands the commands to the device.
func (b *Batch) flush() error {
	commands := b.commands
	b.commands = b.commands[:0]
	if len(commands) == 0 {
		return nil
	}
	return b.pipe.dev.Enqueue(commands)
}

// endOf comes behind each stage, where most schedules have nothing to do: with named ranges a stage is a call of its
// own, and in a schedule without overlap the host waits for it.
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

// allocScratch takes bytes in the order of the kernels' stream, waiting for other batches to give theirs
// back where there is no room. It keeps the lane's turn meanwhile, so at most one batch a lane waits.
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

// lastScratch is the last word on a batch for which nobody is left to give scratch back. The pool may be full of
// unused pieces of other sizes, so it gives them to the device first. And a batch comes back when the mark behind its copy
// out is reached, where its scratch may still be in use: that is given back behind the mark, as the stream gets there.
func (b *Batch) lastScratch(bytes int) (device.Memory, error) {
	if err := b.pipe.awaitFrees(); err != nil {
		return device.Memory{}, err
	}
	if err := b.pipe.scratch.Trim(0); err != nil {
		return device.Memory{}, err
	}
	return b.pipe.scratch.Alloc(b.route.kern, bytes)
}

// awaitFrees waits until the streams have passed all that gives scratch back. It is called where nothing else is left on
// them.
func (p *Pipeline) awaitFrees() error {
	if p.shared.kern != nil {
		if err := p.shared.kern.Synchronize(); err != nil {
			return err
		}
	}
	for _, l := range p.lanes {
		if l.own.kern == nil {
			continue
		}
		if err := l.own.kern.Synchronize(); err != nil {
			return err
		}
	}
	return nil
}
