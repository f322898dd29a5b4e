package streams

import (
	"fmt"
	"time"

	"millrace/internal/device"
)

// mark names the marks behind a batch's stages.
type mark uint8

const (
	copiedInMark mark = iota
	computedMark
	copiedOutMark
	numMarks
)

// readMark is what a mark's event said. Asking a GPU costs microseconds, so each is asked once.
type readMark struct {
	at    time.Duration
	known bool
}

// event is the mark's.
func (b *Batch) event(m mark) device.Event {
	return [...]device.Event{b.copiedIn, b.computed, b.copiedOut}[m]
}

// when is the time of a mark that has been reached. The pipeline's timing is held.
func (b *Batch) when(m mark) (time.Duration, error) {
	if r := &b.read[m]; !r.known {
		at, err := b.event(m).Time()
		if err != nil {
			return 0, fmt.Errorf("batch %d: reading its times: %w", b.record.Batch, err)
		}
		*r = readMark{at, true}
	}
	return b.read[m].at, nil
}

// follows says when a batch's turn on its lane's own stream comes: when the batch before it has left that stream.
type follows struct {
	batch *Batch // the batch before, whose marks are still to be read; nil where at is known
	token uint64 // of the flight that is meant
	left  mark   // the last mark of that flight on the lane's own stream

	at time.Duration // known: when the stream was free; 0 for a batch that does not use it
}

// usesOwn reports whether a route has work on the lane's own stream.
func (l *lane) usesOwn(r route) bool { return l.own.kern != nil && r.kern == l.own.kern }

// leaves is the last mark that a batch on route r leaves on the lane's own stream.
func (l *lane) leaves(r route) mark {
	if r.out == l.own.kern {
		return copiedOutMark
	}
	return computedMark // its copy out is on a stream that lanes share
}

// queue notes what b, which is about to be enqueued, follows. The lane's submitting is held. Every batch of the lane
// that has been timed was submitted before b, so ownFree is not later than b's turn.
func (p *Pipeline) queue(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := b.lane
	switch last := l.lastOwn; {
	case !l.usesOwn(b.route):
		b.follows = follows{}
	case last.batch == nil:
		b.follows = follows{at: l.ownFree}
	default:
		b.follows = last.settled(l)
	}
}

// queued notes that b was enqueued. The lane's submitting is held.
func (l *lane) queued(b *Batch) {
	if l.usesOwn(b.route) {
		l.lastOwn = follows{batch: b, token: b.token, left: l.leaves(b.route)}
	}
}

// left notes when b, which is being timed, left its lane's own stream, and tells the batch behind it. p.mu is held.
func (b *Batch) left(at time.Duration) {
	l := b.lane
	if !l.usesOwn(b.route) {
		return
	}
	l.ownFree = max(l.ownFree, at)
	for _, o := range l.batches {
		if o.follows.batch == b && o.follows.token == b.token {
			o.follows = follows{at: at}
		}
	}
}

// settled is f, with a time in place of a flight whose marks cannot be read any more. p.mu is held.
func (f follows) settled(l *lane) follows {
	if f.batch == nil || f.batch.marked(f.token) {
		return f
	}
	return follows{at: l.ownFree}
}

// marked reports whether that flight of b has marks to read. p.mu is held.
func (b *Batch) marked(flight uint64) bool { return b.token == flight && (b.untimed || b.flying()) }

// time is when the turn of a batch that has been reached began. The pipeline's timing is held.
func (f follows) time() (time.Duration, error) {
	if f.batch == nil {
		return f.at, nil
	}
	return f.batch.when(f.left)
}
