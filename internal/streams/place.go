package streams

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/internal/device"
)

// This file derives stage times from event timestamps. The end of the file reads the timestamps.
//
// Each stage ends with an event. All of a batch's work goes to the device in one call. So a stage starts when the
// previous stage ends, and needs no event at its start. If the host waits between stages, each stage also starts with an
// event. Without that event, the device would appear busy before the host has enqueued the stage.
//
// On a GPU, an event before the copy in, between two batches, would cost a quarter of the throughput of large batches
// (adr/0012). Instead, the start of a copy in is the latest of three times:
//
//   - the time at which the host enqueued the copy
//   - the time at which the previous batch on its lane's stream ended
//   - the time at which its engine, which runs one copy at a time, finished the previous copy
//
// The third time requires that copies are placed in the order of their ends. Batches may complete in a different order.
// Therefore, timing a batch also queries the copies in of the batches still in flight.

// copyIn describes a copy in that has not yet been placed in the timeline.
type copyIn struct {
	batch       *Batch
	token       uint64        // token of the batch's submission
	queued      time.Duration // time at which the host began to enqueue the copy, which orders the copies of a stream
	predecessor predecessor
	span        Span
}

// lateTimestamps holds the timestamps of a batch's kernels and its copy out. A start of 0 means that the stage starts
// at the end of the previous stage.
type lateTimestamps struct{ computing, computed, copyingOut, copiedOut time.Duration }

// timeUpTo reads the timestamps of completed batches, in order of completion, up to and including b. A nil b means all
// batches. A batch has three events, and each query of a GPU event takes microseconds. Therefore, call timeUpTo only
// before the timestamps are used or the batch is reused.
func (p *Pipeline) timeUpTo(b *Batch) {
	p.timing.Lock()
	defer p.timing.Unlock()
	for {
		next, after := p.nextUntimed(b)
		if next == nil {
			return
		}
		last, err := p.readTimestamps(next, after)
		p.timed(next, last, err)
		if lost := p.dev.Err(); lost != nil {
			p.fail(lost)
		} else if err != nil {
			p.reportError(err)
		}
	}
}

// nextUntimed returns the next batch with unread timestamps, and its predecessor. It returns nil if b has been timed,
// or if b is nil and all batches have been timed. It also fills p.copies with the copies in that may have ended, in
// order of submission.
func (p *Pipeline) nextUntimed(b *Batch) (*Batch, predecessor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.untimed) == 0 || b != nil && !b.untimed {
		return nil, predecessor{}
	}
	p.copies = p.copies[:0]
	for _, o := range p.slots {
		if (o.untimed || o.onDevice()) && !o.copied {
			p.copies = append(p.copies, copyIn{batch: o, token: o.token, queued: o.enqueued, predecessor: o.predecessor.resolved(o.lane)})
		}
	}
	slices.SortFunc(p.copies, func(x, y copyIn) int {
		return cmp.Or(cmp.Compare(x.queued, y.queued), cmp.Compare(x.token, y.token))
	})
	next := p.untimed[0]
	return next, next.predecessor.resolved(next.lane)
}

// onDevice reports whether the batch is in flight with all its work enqueued. The caller holds p.mu.
func (b *Batch) onDevice() bool { return b.phase == inFlight && !b.submitting }

// readTimestamps reads the timestamps of b's kernels and copy out. after is b's predecessor. It also sets p.copies to
// the result of readCopies. The caller holds p.timing.
func (p *Pipeline) readTimestamps(b *Batch, after predecessor) (last lateTimestamps, err error) {
	if p.copies, err = p.readCopies(b); err != nil {
		return last, err
	}
	if last.copiedOut, err = b.when(copyOutEnd); err != nil || b.inPlace {
		return last, err
	}
	if last.computed, err = b.when(computeEnd); err != nil {
		return last, err
	}
	if b.start == nil {
		if b.route.in != b.route.kern { // in a single stream, the copy in already waited for the predecessor
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

// readCopies returns the copies in p.copies that ended no later than b's own copy, in order of their ends. It returns
// no copies if b's copy has already been placed. Copies that ended later stay unplaced until another batch is timed,
// because a copy that was not queried may have ended before them.
func (p *Pipeline) readCopies(b *Batch) (ended []copyIn, err error) {
	ended = p.copies[:0]
	if b.copied {
		return ended, nil
	}
	passed := false
	for _, c := range p.copies {
		behind := c.batch.queuedBehind()
		if c.batch != b && (*behind == b.token || passed && c.batch.route.in == b.route.in) {
			continue // the copy is queued behind b or behind a copy that has not ended
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

// queuedBehind returns a pointer to the behind field (see lane.behind) for the stream of b's copy in. The caller holds
// p.timing.
func (b *Batch) queuedBehind() *uint64 {
	if b.route.in == b.pipe.shared.in {
		return &b.pipe.behind
	}
	return &b.lane.behind
}

// measure sets span to the end of the copy and its earliest possible start. A batch in place has no copy, so measure
// uses the span of its kernels.
func (c *copyIn) measure() (err error) {
	end := copyInEnd
	if c.batch.inPlace {
		end = copyOutEnd
	}
	if c.span.End, err = c.batch.when(end); err != nil {
		return err
	}
	c.span.Start = c.queued
	if c.batch.start != nil {
		c.span.Start, err = c.batch.start.Time()
	} else if c.batch.route.in == c.batch.route.kern {
		var turn time.Duration
		turn, err = c.predecessor.time()
		c.span.Start = max(c.span.Start, turn)
	}
	c.span.Start = min(c.span.Start, c.span.End) // the clocks of host and device may differ by some microseconds
	return err
}

// timed removes b, the first batch, from p.untimed. It places the copies in p.copies and, if err is nil, b's other
// stages.
func (p *Pipeline) timed(b *Batch, last lateTimestamps, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.placeCopies()
	if err == nil {
		p.place(b, last)
	}
	b.untimed = false
	p.untimed = slices.Delete(p.untimed, 0, 1)
	if p.activity.isCrowded() {
		p.activity.advance(b.lane.copiedOut)
	} else {
		p.countUntil(b.lane.copiedOut)
	}
}

// countUntil adds up the activity until horizon, or until the oldest batch in flight was submitted. No unknown stage
// can have started before that submission. The caller holds p.mu.
func (p *Pipeline) countUntil(horizon time.Duration) {
	for _, b := range p.slots {
		if b.phase == inFlight || b.untimed {
			horizon = min(horizon, b.record.Stages[Fill].End)
		}
	}
	p.activity.advance(horizon)
}

// placeCopies adds the results of readCopies to the timeline. The caller holds p.mu.
func (p *Pipeline) placeCopies() {
	for _, c := range p.copies {
		b := c.batch
		if !b.untimed && !b.onDevice() || b.token != c.token {
			continue // the batch was released after its copy was listed
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

// filledBy makes the fill stage end no later than start. The fill stage uses the host's clock, which may differ from
// the device's clock by some microseconds.
func (b *Batch) filledBy(start time.Duration) {
	fill := &b.record.Stages[Fill]
	fill.End = min(fill.End, start)
	fill.Start = min(fill.Start, fill.End)
}

// place adds b's stages after the copy in to the timeline. The caller holds p.mu.
func (p *Pipeline) place(b *Batch, last lateTimestamps) {
	l := b.lane
	if b.inPlace {
		l.copiedOut = max(l.copiedOut, last.copiedOut)
		b.left(last.copiedOut)
		return
	}
	compute := ordered(b.record.Stages[CopyIn].End, Span{last.computing, last.computed})
	if b.route == p.shared {
		compute = p.serve(ComputeEngine, compute) // one stream runs all kernels
	}
	b.note(Compute, compute)
	out := p.serve(CopyOutEngine, ordered(compute.End, Span{last.copyingOut, last.copiedOut}))
	b.note(CopyOut, out)
	l.copiedOut = max(l.copiedOut, out.End)
	if l.lastEvent(b.route) == copyOutEnd {
		b.left(out.End)
	} else {
		b.left(compute.End)
	}
}

// note sets a stage in the batch's record and adds it to the engine's busy time.
func (b *Batch) note(stage Stage, span Span) {
	b.record.Stages[stage] = span
	b.pipe.activity.add(Engine(stage-CopyIn), span)
}

// ordered returns s, shifted so that it starts no earlier than before and ends no earlier than it starts.
func ordered(before time.Duration, s Span) Span {
	s.Start = max(s.Start, before)
	s.End = max(s.End, s.Start)
	return s
}

// serve returns s without the time before the end of the engine's previous job, because an engine runs one job at a
// time. It also updates the end of the engine's latest job. A span that ended before an already placed job stays
// unchanged.
func (p *Pipeline) serve(engine Engine, s Span) Span {
	free := p.engineFree[engine]
	p.engineFree[engine] = max(free, s.End)
	if free <= s.End {
		s.Start = max(s.Start, free)
	}
	return s
}

// activity adds up the times in which each engine, any engine, and two or more engines were busy. It receives the
// stages of completed batches slightly out of order. It counts only time before the horizon, and no later stage can
// start before the horizon. Stages that end after the horizon stay in open.
type activity struct {
	busy    [NumEngines]time.Duration
	any     time.Duration
	several time.Duration

	horizon time.Duration // end of the time that has been added up
	open    []stretch
	edges   []edge // reused by advance
}

// maxOpen bounds the length of open. Unless a batch is stuck, open holds a few stages for each batch in flight.
const maxOpen = 4096

type stretch struct {
	engine Engine
	span   Span
}

type edge struct {
	at     time.Duration
	engine Engine
	step   int // +1 where an engine starts, -1 where it stops
}

// add records that engine was busy during span.
func (a *activity) add(engine Engine, span Span) {
	if span.End > a.horizon && span.End > span.Start {
		a.open = append(a.open, stretch{engine, span})
	}
}

// isCrowded reports whether open has reached its bound, because one batch is stuck while others complete. The horizon
// then advances anyway, and the stuck batch's earlier work isn't counted.
func (a *activity) isCrowded() bool { return len(a.open) >= maxOpen }

// advance adds up all time before horizon, the earliest time at which an unknown stage can start.
func (a *activity) advance(horizon time.Duration) {
	if horizon <= a.horizon {
		return
	}
	a.edges = a.edges[:0]
	rest := a.open[:0]
	for _, s := range a.open {
		from, to := max(s.span.Start, a.horizon), min(s.span.End, horizon)
		if from < to {
			a.edges = append(a.edges, edge{from, s.engine, 1}, edge{to, s.engine, -1})
		}
		if s.span.End > horizon {
			rest = append(rest, s)
		}
	}
	a.open = rest
	slices.SortFunc(a.edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	a.sweep()
	a.horizon = horizon
}

// sweep walks the edges in order of time and adds up the busy intervals between them.
func (a *activity) sweep() {
	var depth [NumEngines]int
	at := a.horizon
	for _, e := range a.edges {
		if gone := e.at - at; gone > 0 {
			running := 0
			for engine, d := range depth {
				if d > 0 {
					running++
					a.busy[engine] += gone
				}
			}
			if running > 0 {
				a.any += gone
			}
			if running > 1 {
				a.several += gone
			}
			at = e.at
		}
		depth[e.engine] += e.step
	}
}

// timestamp identifies one of the events at the ends of a batch's stages.
type timestamp uint8

const (
	copyInEnd timestamp = iota
	computeEnd
	copyOutEnd
	numTimestamps
)

// readTimestamp caches the time of an event. Querying a GPU takes microseconds, so each event is read once.
type readTimestamp struct {
	at    time.Duration
	known bool
}

func (b *Batch) event(m timestamp) device.Event {
	return [...]device.Event{b.copiedIn, b.computed, b.copiedOut}[m]
}

// when returns the time of event m, or an error if the device hasn't reached the event. The caller holds
// Pipeline.timing.
func (b *Batch) when(m timestamp) (time.Duration, error) {
	if r := &b.read[m]; !r.known {
		at, err := b.event(m).Time()
		if err != nil {
			return 0, fmt.Errorf("batch %d: reading its times: %w", b.record.Batch, err)
		}
		*r = readTimestamp{at, true}
	}
	return b.read[m].at, nil
}

// predecessor identifies the previous batch on a lane's own stream, or the time at which that batch left the stream.
type predecessor struct {
	batch *Batch    // the previous batch; nil if at is set instead
	token uint64    // token of the previous batch's submission
	left  timestamp // last event of the previous batch on the lane's own stream

	at time.Duration // time at which the stream became free, if batch is nil; 0 for a batch that doesn't use the stream
}

// usesOwn reports whether a batch on route r has work on the lane's own stream.
func (l *lane) usesOwn(r route) bool { return l.own.kern != nil && r.kern == l.own.kern }

// lastEvent returns the last event that a batch on route r records on the lane's own stream.
func (l *lane) lastEvent(r route) timestamp {
	if r.out == l.own.kern {
		return copyOutEnd
	}
	return computeEnd // the copy out is on a shared stream
}

// queue sets b's predecessor before b is enqueued. The caller holds lane.submitting. Every timed batch of the lane was
// submitted before b, so ownFree is no later than b's start.
func (p *Pipeline) queue(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := b.lane
	switch last := l.lastOwn; {
	case !l.usesOwn(b.route):
		b.predecessor = predecessor{}
	case last.batch == nil:
		b.predecessor = predecessor{at: l.ownFree}
	default:
		b.predecessor = last.resolved(l)
	}
}

// queued makes b the predecessor of the next batch on the lane's own stream. The caller holds lane.submitting.
func (l *lane) queued(b *Batch) {
	if l.usesOwn(b.route) {
		l.lastOwn = predecessor{batch: b, token: b.token, left: l.lastEvent(b.route)}
	}
}

// left records the time at which b left its lane's own stream. It also sets that time in the batch whose predecessor is
// b. The caller holds Pipeline.mu.
func (b *Batch) left(at time.Duration) {
	l := b.lane
	if !l.usesOwn(b.route) {
		return
	}
	l.ownFree = max(l.ownFree, at)
	for _, o := range l.batches {
		if o.predecessor.batch == b && o.predecessor.token == b.token {
			o.predecessor = predecessor{at: at}
		}
	}
}

// resolved returns p, unless the timestamps of p's batch can no longer be read. In that case, it returns the time at
// which the stream became free. The caller holds Pipeline.mu.
func (p predecessor) resolved(l *lane) predecessor {
	if p.batch == nil || p.batch.hasTimestamps(p.token) {
		return p
	}
	return predecessor{at: l.ownFree}
}

// hasTimestamps reports whether the batch's events still hold the timestamps of the given submission (a token). The
// caller holds Pipeline.mu.
func (b *Batch) hasTimestamps(submission uint64) bool {
	return b.token == submission && (b.untimed || b.onDevice())
}

// time returns the time at which the predecessor left the lane's own stream. The caller holds Pipeline.timing.
func (p predecessor) time() (time.Duration, error) {
	if p.batch == nil {
		return p.at, nil
	}
	return p.batch.when(p.left)
}
