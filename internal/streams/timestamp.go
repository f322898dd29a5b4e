package streams

import (
	"fmt"
	"time"

	"millrace/internal/device"
)

// timestamp identifies one of the events at the ends of a batch's stages.
type timestamp uint8

const (
	copyInEnd timestamp = iota
	computeEnd
	copyOutEnd
	numTimestamps
)

// readTimestamp is the time of an event, once known. Querying a GPU takes microseconds, so each event is read once.
type readTimestamp struct {
	at    time.Duration
	known bool
}

// event returns the batch's event for m.
func (b *Batch) event(m timestamp) device.Event {
	return [...]device.Event{b.copiedIn, b.computed, b.copiedOut}[m]
}

// when returns the time of an event that has been reached. The caller holds Pipeline.timing.
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

// predecessor tells when a batch reaches the head of its lane's own stream: when the previous batch has left that
// stream.
type predecessor struct {
	batch *Batch    // the previous batch, if its timestamps are still to be read; nil if at is known
	token uint64    // the submission of that batch
	left  timestamp // its last event on the lane's own stream

	at time.Duration // if batch is nil: when the stream became free; 0 for a batch that doesn't use it
}

// usesOwn reports whether a batch on route r has work on the lane's own stream.
func (l *lane) usesOwn(r route) bool { return l.own.kern != nil && r.kern == l.own.kern }

// lastEvent returns the last event that a batch on route r records on the lane's own stream.
func (l *lane) lastEvent(r route) timestamp {
	if r.out == l.own.kern {
		return copyOutEnd
	}
	return computeEnd // its copy out is on a shared stream
}

// queue sets the predecessor of b, which is about to be enqueued. The caller holds lane.submitting. Every batch of the
// lane that has been timed was submitted before b, so ownFree is not later than b's start.
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

// queued records that b was enqueued. The caller holds lane.submitting.
func (l *lane) queued(b *Batch) {
	if l.usesOwn(b.route) {
		l.lastOwn = predecessor{batch: b, token: b.token, left: l.lastEvent(b.route)}
	}
}

// left records when b, which is being timed, left its lane's own stream, and passes that time to the batch behind it.
// The caller holds Pipeline.mu.
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

// resolved returns f, or the time at which the stream became free if the predecessor's timestamps can't be read any
// more. The caller holds Pipeline.mu.
func (p predecessor) resolved(l *lane) predecessor {
	if p.batch == nil || p.batch.hasTimestamps(p.token) {
		return p
	}
	return predecessor{at: l.ownFree}
}

// hasTimestamps reports whether the batch can still be queried for the timestamps of that submission. The caller holds
// Pipeline.mu.
func (b *Batch) hasTimestamps(submission uint64) bool {
	return b.token == submission && (b.untimed || b.onDevice())
}

// time returns when the batch reached the head of the lane's own stream. The caller holds Pipeline.timing.
func (p predecessor) time() (time.Duration, error) {
	if p.batch == nil {
		return p.at, nil
	}
	return p.batch.when(p.left)
}
