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
