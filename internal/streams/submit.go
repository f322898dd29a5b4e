package streams

import (
	"errors"
	"fmt"

	"millrace/internal/device"
)

// resultAlign is how operators' results are aligned on the device (device.LaunchArgs).
const resultAlign = 256

// Submit hands the batch to the device: copy in, scratch in stream order, the operators' kernels, scratch
// back, copy out, and a completion, all enqueued without waiting (but see Schedule.HostWaits). The batch
// comes back through Pipeline.Completed.
//
// If Submit fails the batch stays with the caller, filled as it was, nothing of it in flight; the caller may
// submit it again unless the error wraps device.ErrLost or ErrClosed, or must release it.
//
// A batch that gets no scratch waits for others in flight to give theirs back, and fails with
// device.ErrOutOfMemory only when there are none.
func (b *Batch) Submit(why CloseReason) error {
	if b.Rows() == 0 {
		return ErrEmpty
	}
	p, l := b.pipe, b.lane
	l.submitting.Lock()
	defer l.submitting.Unlock()
	if err := p.submitted(b, why); err != nil {
		return err
	}
	err := b.enqueue()
	if err == nil {
		l.last = b
		// From the next call on the batch may come back at any moment and is not ours to touch.
		err = p.notify(b)
	}
	if err != nil {
		// What was enqueued before the failure may still use the buffers.
		err = errors.Join(fmt.Errorf("batch %d: %w", b.record.Batch, err), l.drain())
		l.last = nil
		p.withdrawn(b, err)
	}
	return err
}

// plan lays out the operators' results and says what the launches need: scratch for the one that needs
// most, since they run one after another, and result room for all.
func (b *Batch) plan() (device.Needs, error) {
	var all device.Needs
	shape := b.shape()
	b.results = b.results[:0]
	for _, k := range b.pipe.kernels {
		n := k.Needs(shape)
		all.Scratch = max(all.Scratch, n.Scratch)
		b.results = append(b.results, resultSpan{off: all.Result, len: n.Result})
		all.Result = alignUp(all.Result+n.Result, resultAlign)
	}
	b.record.Payloads, b.record.Bytes = b.Rows(), b.bytes
	b.record.ResultBytes, b.record.Scratch = all.Result, all.Scratch
	if room := b.lane.result.Bytes; all.Result > room {
		return all, device.Errorf("plan batch", b.pipe.info.ID, device.ErrInvalid,
			"its results take %d bytes and the largest batch was said to take %d", all.Result, room)
	}
	return all, nil
}

// enqueue puts the stages on the lane's streams.
func (b *Batch) enqueue() error {
	needs, err := b.plan()
	if err != nil {
		return err
	}
	region, table := b.seal()
	if err := b.copyIn(region); err != nil {
		return err
	}
	if err := b.compute(table, needs); err != nil {
		return err
	}
	return b.copyOut(needs)
}

// copyIn moves the region to the device, once the batch before has read what is there.
func (b *Batch) copyIn(region device.HostBuffer) error {
	l := b.lane
	if l.last != nil {
		if err := after(l.in, l.kern, l.last.computed); err != nil {
			return err
		}
	}
	if err := l.in.Record(b.start); err != nil {
		return err
	}
	if err := l.in.CopyIn(l.input, region); err != nil {
		return err
	}
	return b.finish(l.in, b.copiedIn)
}

// compute runs the operators one after another, on scratch that lives in stream order just as long.
func (b *Batch) compute(table int, needs device.Needs) error {
	l := b.lane
	if err := after(l.kern, l.in, b.copiedIn); err != nil {
		return err
	}
	if l.last != nil {
		if err := after(l.kern, l.out, l.last.copiedOut); err != nil {
			return err
		}
	}
	scratch, err := b.allocScratch(needs.Scratch)
	if err != nil {
		return err
	}
	err = l.kern.Record(b.computing)
	if err == nil {
		err = b.launchAll(table, scratch)
	}
	if scratch.Bytes > 0 {
		err = errors.Join(err, b.pipe.scratch.Free(l.kern, scratch))
	}
	if err != nil {
		return err
	}
	return b.finish(l.kern, b.computed)
}

func (b *Batch) launchAll(table int, scratch device.Memory) error {
	l := b.lane
	shape := b.shape()
	args := device.LaunchArgs{
		Shape:   shape,
		Rows:    l.input.Slice(0, b.bytes),
		Offsets: l.input.Slice(table, 4*len(b.offsets)),
		Scratch: scratch,
	}
	for i, k := range b.pipe.kernels {
		args.Result = l.result.Slice(b.results[i].off, b.results[i].len)
		if err := l.kern.Launch(k, args); err != nil {
			return fmt.Errorf("operator %s: %w", k.Name(), err)
		}
	}
	return nil
}

// copyOut moves all operators' records to the host.
func (b *Batch) copyOut(needs device.Needs) error {
	l := b.lane
	if err := after(l.out, l.kern, b.computed); err != nil {
		return err
	}
	if err := l.out.Record(b.copyingOut); err != nil {
		return err
	}
	if err := l.out.CopyOut(b.out, l.result.Slice(0, needs.Result)); err != nil {
		return err
	}
	return b.finish(l.out, b.copiedOut)
}

// finish marks the end of a stage, and in a schedule without overlap waits for it.
func (b *Batch) finish(s device.Stream, e device.Event) error {
	if err := s.Record(e); err != nil {
		return err
	}
	if b.pipe.schedule.HostWaits {
		return s.Synchronize()
	}
	return nil
}

// after makes work on s wait for e, which was recorded on other. On one stream the order is there already.
func after(s, other device.Stream, e device.Event) error {
	if s == other {
		return nil
	}
	return s.Wait(e)
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
		m, err := p.scratch.Alloc(b.lane.kern, bytes)
		if err == nil || !errors.Is(err, device.ErrOutOfMemory) {
			return m, err
		}
		came, err := p.awaitCompletion(seen)
		if err != nil {
			return device.Memory{}, err
		}
		if !came {
			return b.lastScratch(bytes)
		}
	}
}

// lastScratch is the last word on a batch for which nobody is left to give scratch back. The pool may be full of
// unused pieces of other sizes, so it gives them to the device first.
func (b *Batch) lastScratch(bytes int) (device.Memory, error) {
	if err := b.pipe.scratch.Trim(0); err != nil {
		return device.Memory{}, err
	}
	return b.pipe.scratch.Alloc(b.lane.kern, bytes)
}
