package streams

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/device"
)

// phase is the state of a batch buffer.
type phase uint8

const (
	free     phase = iota // not in use
	filling               // the caller appends payloads
	inFlight              // the device works on it
	done                  // the caller reads its results or its error
)

func (p phase) String() string {
	return [...]string{"free", "filling", "in flight", "done"}[p]
}

// next lists the permitted transitions. A filling batch becomes free if it is released without being submitted. A batch
// in flight is filling again if its submission failed. A completed batch is filling again if it is resubmitted.
var next = [...][]phase{
	free:     {filling},
	filling:  {inFlight, free},
	inFlight: {done, filling},
	done:     {free, filling},
}

// route holds the streams for a batch's stages. All three are the same stream, or there is one for each engine.
type route struct{ in, kern, out device.Stream }

func (r route) drain() error {
	if r.in == nil {
		return nil
	}
	return errors.Join(r.in.Synchronize(), r.kern.Synchronize(), r.out.Synchronize())
}

// lane is a stream and the one or two batches that take turns on it. Both may be in flight: the second then queues
// behind the first on the lane's own stream.
type lane struct {
	index   int
	own     route // the lane's own stream; zero in StreamPerStage
	batches []*Batch
	busy    atomic.Int32  // number of batches in flight
	idle    chan struct{} // receives when busy drops to 0

	submitting sync.Mutex  // keeps the work of two batches from interleaving on a stream
	lastOwn    predecessor // the latest batch submitted to the lane's own stream; guarded by submitting

	copiedOut time.Duration // latest known end of a copy out; guarded by Pipeline.mu
	ownFree   time.Duration // when the latest timed batch left the lane's own stream; guarded by Pipeline.mu
	behind    uint64        // token of a batch: when it was timed, the next copy in on the lane's own stream had not ended; guarded by Pipeline.timing
}

// state returns the state of the lane as a whole, derived from its batches.
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

// move is the only function that changes a batch's phase. It panics on a forbidden transition, which means a bug in the
// pipeline or the use of a batch that the caller no longer owns. The caller holds Pipeline.mu.
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
			default: // a signal is already waiting to be received
			}
		}
		b.phase = to
		return
	}
	panic(fmt.Sprintf("streams: batch %d on lane %d cannot go from %v to %v", b.record.Batch, l.index, b.phase, to))
}

// drain waits until none of the lane's work uses its buffers. On a hung device it may never return.
func (p *Pipeline) drain(l *lane) error {
	if err := p.Hung(); err != nil {
		return err
	}
	return errors.Join(l.own.drain(), p.shared.drain())
}
