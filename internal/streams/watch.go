package streams

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/device"
)

// Completion by asking. It takes less of the device and of the driver than being told: a notification or an interrupt
// behind each batch holds up what comes next on its stream, and goes over the driver's thread, a file descriptor and the
// scheduler.

// smallBatch is the most bytes of payloads that a batch is asked about for: more take longer than is worth it.
const smallBatch = 256 << 10

// flight is a batch in flight whose event is asked.
type flight struct {
	batch *Batch
	token uint64
	out   device.Stream // where its mark is, and its notification would go
	ended device.Event
	until time.Time // when its submitter gives up asking; zero for not at all
}

// await asks a lone batch, on its submitter's goroutine, for as long as that is worth it. Then it is left to the ways
// by which the others come back.
func (p *Pipeline) await(f flight) {
	defer p.asking.Done()
	for !p.ask(f) {
		if time.Now().Before(f.until) {
			runtime.Gosched()
			continue
		}
		if p.schedule.Completion == ByNapping {
			p.asked <- f // there is room for every batch, so this never blocks
		} else if err := f.out.Notify(f.token); err != nil {
			p.abandon(f, err)
		}
		return
	}
}

// watch asks the batches that come through p.asked until they have ended, it is stopped, or the device is lost.
func (p *Pipeline) watch(ctx context.Context) {
	var naps naps
	defer naps.begin()()
	var flights []flight
	for ctx.Err() == nil {
		if len(flights) == 0 {
			select {
			case f := <-p.asked:
				flights = append(flights, f)
				naps.restart()
			case <-ctx.Done():
				return
			}
		}
		for range len(p.asked) {
			flights = append(flights, <-p.asked)
		}
		before := len(flights)
		flights = p.sweep(flights)
		if len(flights) == before {
			naps.nap()
		} else {
			naps.came()
		}
	}
}

// sweep completes the flights that have ended, and returns the others. Of each queue the oldest is asked first, and
// those behind it only when it has ended.
func (p *Pipeline) sweep(flights []flight) []flight {
	p.pending = p.pending[:0]
	return slices.DeleteFunc(flights, func(f flight) bool {
		if slices.Contains(p.pending, f.out) {
			return false
		}
		ended := p.ask(f)
		if !ended {
			p.pending = append(p.pending, f.out)
		}
		return ended
	})
}

// ask checks whether a batch has ended, and completes it. It reports true when there is nothing left to ask.
func (p *Pipeline) ask(f flight) bool {
	switch done, err := f.ended.Done(); {
	case err != nil:
		p.abandon(f, err)
	case done:
		p.batchCompleted(f.token)
	default:
		return false
	}
	return true
}

// abandon gives a batch back as failed whose end cannot be learnt, once nothing uses its buffers any more.
func (p *Pipeline) abandon(f flight, err error) {
	drained := p.drain(f.batch.lane)
	if lost := p.dev.Err(); lost != nil {
		p.fail(lost)
		return
	}
	if drained != nil {
		err = drained
	}
	if p.failed(f, err) {
		p.reportError(err)
	}
}

func (p *Pipeline) failed(f flight, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.batch.phase != inFlight || f.batch.token != f.token {
		return false
	}
	f.batch.record.Err = err
	p.end(f.batch)
	return true
}
