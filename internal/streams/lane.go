package streams

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// phase is where a batch buffer is in its life.
type phase uint8

const (
	free     phase = iota // nobody uses it
	filling               // the caller packs payloads into it
	inFlight              // the device works on it
	done                  // its results, or its error, are being read by the caller
)

func (p phase) String() string {
	return [...]string{"free", "filling", "in flight", "done"}[p]
}

// next lists, for each phase, the phases that may follow. A filling batch becomes free when it is given back
// unsubmitted; one in flight is filling again when its submission failed half way, and one that is done when it is
// to be submitted again.
var next = [...][]phase{
	free:     {filling},
	filling:  {inFlight, free},
	inFlight: {done, filling},
	done:     {free, filling},
}

// route is the streams that the stages of a batch go to: one and the same, or one for each engine.
type route struct{ in, kern, out device.Stream }

func (r route) drain() error {
	if r.in == nil {
		return nil
	}
	return errors.Join(r.in.Synchronize(), r.kern.Synchronize(), r.out.Synchronize())
}

// lane is a stream and the one or two batches that take turns on it. Both may be in flight: on the lane's own stream the
// second queues behind the first.
type lane struct {
	index   int
	own     route // a stream of its own; none in StreamPerStage
	batches []*Batch
	busy    atomic.Int32  // batches in flight
	idle    chan struct{} // receives when busy falls to 0

	submitting sync.Mutex // keeps the work of two batches from interleaving on a stream
	lastOwn    follows    // the batch that was submitted last to its own stream. Guarded by submitting

	copiedOut time.Duration // when the latest batch known had been copied out. Guarded by the pipeline's mutex
	ownFree   time.Duration // when the latest batch known had left the lane's own stream. Likewise
	behind    uint64        // token of the completion at which the next copy in on its own stream had not ended; guarded by the pipeline's timing
}

// state is what the lane as a whole does, by the phases of its batches.
func (l *lane) state() phase {
	s := free
	for _, b := range l.batches {
		switch b.phase {
		case inFlight:
			return inFlight
		case filling:
			s = filling
		}
	}
	return s
}

// move is the only place where a batch changes its phase. It panics on a step that the table forbids: that
// is a bug of the pipeline or a batch used after it was given away. The pipeline's mutex is held.
func (l *lane) move(b *Batch, to phase) {
	for _, p := range next[b.phase] {
		if p != to {
			continue
		}
		if to == inFlight {
			l.busy.Add(1)
		}
		if b.phase == inFlight && l.busy.Add(-1) == 0 {
			select {
			case l.idle <- struct{}{}:
			default: // one is waiting to be read already
			}
		}
		b.phase = to
		return
	}
	panic(fmt.Sprintf("streams: batch %d on lane %d cannot go from %v to %v", b.record.Batch, l.index, b.phase, to))
}

// drain waits until nothing of the lane's work uses its buffers any more. On a device that hangs that may never be.
func (p *Pipeline) drain(l *lane) error {
	if err := p.Hung(); err != nil {
		return err
	}
	return errors.Join(l.own.drain(), p.shared.drain())
}
