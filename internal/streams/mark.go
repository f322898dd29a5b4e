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

// follows is the batch before a batch on its lane's own stream, which its first stage had to wait for.
type follows struct {
	batch *Batch // nil for none
	token uint64 // of the flight that is meant
}

// before is what b, which is about to be enqueued, follows. The lane's submitting is held.
func (l *lane) before(b *Batch) follows {
	if l.last == nil || b.route != l.own || l.lastRoute != l.own {
		return follows{}
	}
	if l.last == b {
		return follows{b, 0} // an earlier flight, not this one: it has been timed
	}
	return follows{l.last, l.last.token}
}

// known turns what a batch follows into a time, where that is known already: the batch was timed, and may have gone on
// since. p.mu is held.
func (f follows) known(l *lane) (open follows, at time.Duration) {
	if f.batch == nil || f.batch.token == f.token && (f.batch.untimed || f.batch.flying()) {
		return f, 0
	}
	return follows{}, l.copiedOut
}
