package streams

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"millrace/internal/device"
)

// What turns the marks of device events into stages.
//
// There are marks behind the stages and none before: all of a batch goes to the device in one call, so a stage begins
// where the one before it ended. Only where the host waits between stages do they have marks before them too: a device
// that has nothing to do meanwhile must not be counted as busy with what it does not know of yet.
//
// A mark before the first copy would say when its stream got there. On a GPU such a mark, between the end of one
// batch and the copy in of the next, costs a quarter of the throughput of large batches (docs/benchmarks.md). So a copy
// in began when the host enqueued it, or when the batch before it on its lane's stream was done, or when its engine, which
// serves one copy at a time, was done with the copy before: whichever is latest. To know the copy before, copies must be placed in the
// order of their ends; but batches do not complete in the order in which they were copied in. So whenever a batch
// completes, the copies in of the batches still in flight are asked for too.

// copyIn is a copy in that has not been placed.
type copyIn struct {
	batch   *Batch
	token   uint64        // of the flight that it belongs to
	queued  time.Duration // when the host began to enqueue it: who comes first in a stream was first here
	follows follows
	span    Span
}

// lastMarks are the marks about a batch's kernels and its copy out. Those before them are 0 where the mark behind the
// stage before will do.
type lastMarks struct{ computing, computed, copyingOut, copiedOut time.Duration }

// timeUpTo reads the times of the batches that came back, in that order, until those of b are in its record. It is
// called by who wants to see them or to use the batch again, and not as the batch comes back: asking a GPU for the
// time of an event takes it microseconds, and there are three.
func (p *Pipeline) timeUpTo(b *Batch) {
	p.timing.Lock()
	defer p.timing.Unlock()
	for {
		next, after := p.nextUntimed(b)
		if next == nil {
			return
		}
		last, err := p.readMarks(next, after)
		p.timed(next, last, err)
		if lost := p.dev.Err(); lost != nil {
			p.fail(lost)
		} else if err != nil {
			p.reportError(err)
		}
	}
}

// nextUntimed is the batch whose times are to be read next and what that follows; nil if those of b are read, or of all
// if b is nil. It lists in p.copies the copies in that may have ended, in the order in which they were submitted.
func (p *Pipeline) nextUntimed(b *Batch) (*Batch, follows) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.untimed) == 0 || b != nil && !b.untimed {
		return nil, follows{}
	}
	p.copies = p.copies[:0]
	for _, o := range p.slots {
		if (o.untimed || o.flying()) && !o.copied {
			p.copies = append(p.copies, copyIn{batch: o, token: o.token, queued: o.enqueued, follows: o.follows.settled(o.lane)})
		}
	}
	slices.SortFunc(p.copies, func(x, y copyIn) int {
		return cmp.Or(cmp.Compare(x.queued, y.queued), cmp.Compare(x.token, y.token))
	})
	next := p.untimed[0]
	return next, next.follows.settled(next.lane)
}

// flying says whether the batch is in flight with all its marks recorded. p.mu is held.
func (b *Batch) flying() bool { return b.phase == inFlight && !b.submitting }

// readMarks reads what the events of b say, which comes after after, and of p.copies keeps those that have ended.
// p.timing is held.
func (p *Pipeline) readMarks(b *Batch, after follows) (last lastMarks, err error) {
	if p.copies, err = p.readCopies(b); err != nil {
		return last, err
	}
	if last.copiedOut, err = b.when(copiedOutMark); err != nil || b.inPlace {
		return last, err
	}
	if last.computed, err = b.when(computedMark); err != nil {
		return last, err
	}
	if b.start == nil {
		if b.route.in != b.route.kern { // otherwise the copy in has waited for that already
			last.computing, err = after.time()
		}
		return last, err
	}
	if last.computing, err = b.computing.Time(); err != nil {
		return last, err
	}
	last.copyingOut, err = b.copyingOut.Time()
	return last, err
}

// readCopies keeps those of p.copies that ended no later than b's own did, in the order in which they ended; none if
// b's has been placed before. Those that ended later wait for a batch behind b: others, not asked, may have ended
// between b's and theirs.
func (p *Pipeline) readCopies(b *Batch) (ended []copyIn, err error) {
	ended = p.copies[:0]
	if b.copied {
		return ended, nil
	}
	passed := false
	for _, c := range p.copies {
		behind := c.batch.queuedBehind()
		if c.batch != b && (*behind == b.token || passed && c.batch.route.in == b.route.in) {
			continue // it comes behind one that has not ended, or behind b itself
		}
		passed = passed || c.batch == b
		switch err = c.measure(); {
		case err == nil:
			ended = append(ended, c)
		case c.batch == b || errors.Is(err, device.ErrLost):
			return ended[:0], err
		default:
			*behind = b.token
		}
	}
	slices.SortFunc(ended, func(x, y copyIn) int { return cmp.Compare(x.span.End, y.span.End) })
	own := slices.IndexFunc(ended, func(c copyIn) bool { return c.batch == b })
	return ended[:own+1], nil
}

// queuedBehind is where the queue of b's copy in keeps that one had not ended. p.timing is held.
func (b *Batch) queuedBehind() *uint64 {
	if b.route.in == b.pipe.shared.in {
		return &b.pipe.behind
	}
	return &b.lane.behind
}

// measure finds when the copy ended, and when it can have begun. Of a batch in place that is all there is.
func (c *copyIn) measure() (err error) {
	end := copiedInMark
	if c.batch.inPlace {
		end = copiedOutMark
	}
	if c.span.End, err = c.batch.when(end); err != nil {
		return err
	}
	c.span.Start = c.queued
	if c.batch.start != nil {
		c.span.Start, err = c.batch.start.Time()
	} else if c.batch.route.in == c.batch.route.kern {
		var turn time.Duration
		turn, err = c.follows.time()
		c.span.Start = max(c.span.Start, turn)
	}
	c.span.Start = min(c.span.Start, c.span.End) // the clocks of host and device agree to some microseconds
	return err
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
		b.filledBy(c.span.Start)
		if b.inPlace {
			b.note(Compute, c.span)
		} else {
			b.note(CopyIn, p.serve(CopyInEngine, c.span))
		}
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
	l := b.lane
	if b.inPlace {
		l.copiedOut = max(l.copiedOut, last.copiedOut)
		b.left(last.copiedOut)
		return
	}
	compute := ordered(b.record.Stages[CopyIn].End, Span{last.computing, last.computed})
	if b.route == p.shared {
		compute = p.serve(ComputeEngine, compute) // one stream has all kernels
	}
	b.note(Compute, compute)
	out := p.serve(CopyOutEngine, ordered(compute.End, Span{last.copyingOut, last.copiedOut}))
	b.note(CopyOut, out)
	l.copiedOut = max(l.copiedOut, out.End)
	if l.leaves(b.route) == copiedOutMark {
		b.left(out.End)
	} else {
		b.left(compute.End)
	}
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
