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

// lastMarks are the marks about a batch's kernels and its copy out. Those before them are 0 where the mark behind the
// stage before will do.
type lastMarks struct{ computing, computed, copyingOut, copiedOut time.Duration }

// timeUpTo reads the times of the batches that came back, in that order, until those of b are in its record. It is
// called by who wants to see them or to use the batch again, and not as the batch comes back: asking a GPU for the
// time of an event takes it microseconds, and there are four.
func (p *Pipeline) timeUpTo(b *Batch) {
	p.timing.Lock()
	defer p.timing.Unlock()
	for {
		next := p.nextUntimed(b)
		if next == nil {
			return
		}
		last, err := p.readMarks(next)
		p.timed(next, last, err)
		if lost := p.dev.Err(); lost != nil {
			p.fail(lost)
		} else if err != nil {
			p.reportError(err)
		}
	}
}

// nextUntimed is the batch whose times are to be read next, nil if those of b are read, or of all if b is nil. It lists
// in p.copies the copies in that may have ended, in the order in which they were submitted.
func (p *Pipeline) nextUntimed(b *Batch) *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.untimed) == 0 || b != nil && !b.untimed {
		return nil
	}
	p.copies = p.copies[:0]
	for _, o := range p.slots {
		if o.untimed || o.flying() {
			if !o.copied && !o.inPlace {
				p.copies = append(p.copies, copyIn{batch: o, token: o.token})
			}
		}
	}
	slices.SortFunc(p.copies, func(x, y copyIn) int { return cmp.Compare(x.token, y.token) })
	return p.untimed[0]
}

// flying says whether the batch is in flight with all its marks recorded. p.mu is held.
func (b *Batch) flying() bool { return b.phase == inFlight && !b.submitting }

// readMarks reads what b's events say, and of p.copies keeps those that have ended. p.timing is held.
func (p *Pipeline) readMarks(b *Batch) (last lastMarks, err error) {
	if p.copies, err = p.readCopies(b); err != nil {
		return last, err
	}
	if b.inPlace {
		if last.computing, err = b.start.Time(); err != nil {
			return last, b.unread(err)
		}
		last.computed, err = b.copiedOut.Time()
		return last, err
	}
	if b.computing != b.copiedIn {
		if last.computing, err = b.computing.Time(); err != nil {
			return last, b.unread(err)
		}
		if last.copyingOut, err = b.copyingOut.Time(); err != nil {
			return last, b.unread(err)
		}
	}
	if last.computed, err = b.computed.Time(); err != nil {
		return last, b.unread(err)
	}
	if last.copiedOut, err = b.copiedOut.Time(); err != nil {
		return last, b.unread(err)
	}
	return last, nil
}

// readCopies keeps those of p.copies that ended no later than b's own did, in the order in which they ended; none if
// b's has been placed before. Those that ended later wait for a batch behind b: others, not asked, may have ended
// between b's and theirs.
func (p *Pipeline) readCopies(b *Batch) (ended []copyIn, err error) {
	ended = p.copies[:0]
	if b.copied || b.inPlace {
		return ended, nil
	}
	for _, c := range p.copies {
		if c.batch.lane.behind == b.token {
			continue // the one before it on this lane has not ended
		}
		switch c.span, err = c.batch.copyMarks(); {
		case err == nil:
			ended = append(ended, c)
		case c.batch == b || errors.Is(err, device.ErrLost):
			return ended[:0], b.unread(err)
		default:
			c.batch.lane.behind = b.token
		}
	}
	slices.SortFunc(ended, func(x, y copyIn) int { return cmp.Compare(x.span.End, y.span.End) })
	own := slices.IndexFunc(ended, func(c copyIn) bool { return c.batch == b })
	return ended[:own+1], nil
}

// copyMarks are the marks about the batch's copy in. They are read once. p.timing is held.
func (b *Batch) copyMarks() (Span, error) {
	if b.copySpan == (Span{}) {
		span, err := marks(b.start, b.copiedIn)
		if err != nil {
			return span, err
		}
		b.copySpan = span
	}
	return b.copySpan, nil
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

// timed enters what was read for b, the first of p.untimed, or passes it over if its marks could not be read.
func (p *Pipeline) timed(b *Batch, last lastMarks, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placeCopies()
	if err == nil {
		p.place(b, last)
	}
	b.untimed = false
	p.untimed = slices.Delete(p.untimed, 0, 1)
	// Nothing that is still to come can have started before the oldest batch in flight was submitted.
	mark := b.lane.copiedOut
	for _, other := range p.slots {
		if (other.phase == inFlight || other.untimed) && !p.activity.crowded() {
			mark = min(mark, other.record.Stages[Fill].End)
		}
	}
	p.activity.advance(mark)
}

// placeCopies places the copies in that readCopies kept. p.mu is held.
func (p *Pipeline) placeCopies() {
	for _, c := range p.copies {
		b := c.batch
		if !b.untimed && !b.flying() || b.token != c.token {
			continue // given back meanwhile
		}
		b.copied = true
		b.note(CopyIn, p.serve(CopyInEngine, c.span))
		b.filledBy(c.span.Start)
	}
}

// filledBy sees to it that filling ended before the device began: it is timed by the host, whose clock agrees with the
// device's to some microseconds only.
func (b *Batch) filledBy(start time.Duration) {
	fill := &b.record.Stages[Fill]
	fill.End = min(fill.End, start)
	fill.Start = min(fill.Start, fill.End)
}

// place fills in the stages after the copy in. p.mu is held.
func (p *Pipeline) place(b *Batch, last lastMarks) {
	if b.inPlace {
		b.filledBy(last.computing)
		b.note(Compute, ordered(0, Span{last.computing, last.computed}))
		b.lane.copiedOut = max(b.lane.copiedOut, last.computed)
		return
	}
	compute := ordered(b.record.Stages[CopyIn].End, Span{last.computing, last.computed})
	if p.schedule.Topology == StreamPerStage {
		// One stream has all kernels, and this batch's waited there for the lane's result buffer.
		compute = p.serve(ComputeEngine, compute)
		compute.Start = max(compute.Start, min(b.lane.copiedOut, compute.End))
	}
	b.note(Compute, compute)
	out := p.serve(CopyOutEngine, ordered(compute.End, Span{last.copyingOut, last.copiedOut}))
	b.note(CopyOut, out)
	b.lane.copiedOut = max(b.lane.copiedOut, out.End)
}

// note enters a stage into the batch's record and the engine's figures.
func (b *Batch) note(stage Stage, span Span) {
	b.record.Stages[stage] = span
	b.pipe.activity.add(Engine(stage-CopyIn), span)
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
