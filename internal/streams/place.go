package streams

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/internal/device"
)

// What turns the marks of device events into stages.
//
// The mark before a copy is reached when the stream gets there, which may be long before the engine does. An
// engine serves one copy at a time, so a copy began at its mark or when the engine was done with the copy before,
// whichever is later. To know the copy before, copies must be placed in the order of their ends; but batches do
// not complete in the order in which they were copied in. So whenever a batch completes, the copies in of the
// batches still in flight are asked for too.
//
// The mark behind a stage is the mark before the next one, since all of a batch goes to the device in one call. Only
// where the host waits between stages do they have a mark before them of their own: a device that has nothing to do
// meanwhile must not be counted as busy with what it does not know of yet.

// copyIn is a copy in whose marks are read, or are to be read.
type copyIn struct {
	batch *Batch
	token uint64 // of the flight that it belongs to
	span  Span   // from mark to mark
}

// lastMarks are the marks about a batch's kernels and its copy out.
type lastMarks struct{ compute, copyOut Span }

// landed finds the batch that token completes, nil for none, and lists in p.copies the copies in that may have
// ended, in the order in which they were submitted.
func (p *Pipeline) landed(token uint64) *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := token & (1<<slotBits - 1)
	if slot >= uint64(len(p.slots)) {
		return nil
	}
	b := p.slots[slot]
	if b.phase != inFlight || b.token != token {
		return nil
	}
	p.copies = p.copies[:0]
	for _, o := range p.slots {
		// The marks of one that is being submitted may not have been recorded yet.
		if o.phase == inFlight && !o.submitting && !o.copied {
			p.copies = append(p.copies, copyIn{batch: o, token: o.token})
		}
	}
	slices.SortFunc(p.copies, func(x, y copyIn) int { return cmp.Compare(x.token, y.token) })
	return b
}

// readMarks reads what b's events say, and of p.copies keeps those that have ended. p.landing is held.
func (p *Pipeline) readMarks(b *Batch) (lastMarks, error) {
	ended := p.copies[:0]
	token := b.token
	for _, c := range p.copies {
		if c.batch.lane.behind == token {
			continue // the one before it on this lane has not ended
		}
		var err error
		switch c.span, err = marks(c.batch.start, c.batch.copiedIn); {
		case err == nil:
			ended = append(ended, c)
		case c.batch == b || errors.Is(err, device.ErrLost):
			p.copies = ended
			return lastMarks{}, b.unread(err)
		default:
			c.batch.lane.behind = token
		}
	}
	p.copies = ended
	compute, err := marks(b.computing, b.computed)
	if err != nil {
		return lastMarks{}, b.unread(err)
	}
	copyOut, err := marks(b.copyingOut, b.copiedOut)
	if err != nil {
		return lastMarks{}, b.unread(err)
	}
	return lastMarks{compute, copyOut}, nil
}

func (b *Batch) unread(err error) error {
	return fmt.Errorf("batch %d: reading its times: %w", b.record.Batch, err)
}

// marks reads the marks before and behind a stage.
func marks(before, behind device.Event) (s Span, err error) {
	if s.End, err = behind.Time(); err != nil {
		return s, err
	}
	s.Start, err = before.Time()
	return s, err
}

// placeCopies places the copies in that readMarks found, in the order in which they ended. p.mu is held.
func (p *Pipeline) placeCopies() {
	slices.SortFunc(p.copies, func(x, y copyIn) int { return cmp.Compare(x.span.End, y.span.End) })
	for _, c := range p.copies {
		b := c.batch
		if b.phase != inFlight || b.token != c.token {
			continue // given back meanwhile
		}
		b.copied = true
		p.note(b, CopyIn, p.serve(CopyInEngine, c.span))
		// Filling is timed by the host, whose clock agrees with the device's to some microseconds only.
		fill := &b.record.Stages[Fill]
		fill.End = min(fill.End, c.span.Start)
		fill.Start = min(fill.Start, fill.End)
	}
}

// place fills in the stages after the copy in. p.mu is held.
func (p *Pipeline) place(b *Batch, last lastMarks) {
	compute := ordered(b.record.Stages[CopyIn].End, last.compute)
	if p.schedule.Topology == StreamPerStage {
		// One stream has all kernels, and this batch's waited there for the lane's result buffer.
		compute = p.serve(ComputeEngine, compute)
		compute.Start = max(compute.Start, min(b.lane.copiedOut, compute.End))
	}
	p.note(b, Compute, compute)
	out := p.serve(CopyOutEngine, ordered(compute.End, last.copyOut))
	p.note(b, CopyOut, out)
	b.lane.copiedOut = max(b.lane.copiedOut, out.End)
}

// note enters a stage into the batch's record and the engine's figures.
func (p *Pipeline) note(b *Batch, stage Stage, span Span) {
	b.record.Stages[stage] = span
	p.activity.add(Engine(stage-CopyIn), span)
}

// ordered is s, not before the end of the stage before it, nor ending before it starts.
func ordered(before time.Duration, s Span) Span {
	s.Start = max(s.Start, before)
	s.End = max(s.End, s.Start)
	return s
}

// serve is the part of s in which its work was on an engine that serves one at a time: not before the engine was
// done with the work before. What ended before work already placed is left as it is.
func (p *Pipeline) serve(engine Engine, s Span) Span {
	free := p.engineFree[engine]
	p.engineFree[engine] = max(free, s.End)
	if free <= s.End {
		s.Start = max(s.Start, free)
	}
	return s
}
