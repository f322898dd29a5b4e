package streams

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/device"
)

// Completion by asking. It is how a small batch that has the device to itself comes back without the way over the
// driver's thread, a file descriptor and the scheduler, and how other ways of waiting are measured.

// smallBatch is the most bytes of payloads that a batch is asked about for: more take longer than is worth it.
const smallBatch = 256 << 10

// flight is a batch in flight whose event is asked.
type flight struct {
	batch *Batch
	token uint64
	out   device.Stream // where its notification would go
	ended device.Event
	way   Completion
	until time.Time // ByNotify alone: when to give up asking
}

// await asks a lone batch, on its submitter's goroutine, for as long as that is worth it.
func (p *Pipeline) await(f flight) {
	for !p.ask(f) {
		runtime.Gosched()
	}
}

// watch asks the batches that come through p.asked until they have ended, it is stopped, or the device is lost.
func (p *Pipeline) watch(ctx context.Context) {
	var flights []flight
	for ctx.Err() == nil {
		if len(flights) == 0 {
			select {
			case f := <-p.asked:
				flights = append(flights, f)
			case <-ctx.Done():
				return
			}
		}
		for range len(p.asked) {
			flights = append(flights, <-p.asked)
		}
		flights = slices.DeleteFunc(flights, p.ask)
		runtime.Gosched()
	}
}

// ask looks whether a batch has ended and completes it. It reports true when there is nothing left to ask.
func (p *Pipeline) ask(f flight) bool {
	var done bool
	var err error
	if f.way == ByBlocking {
		err = f.ended.Synchronize()
		done = err == nil
	} else {
		done, err = f.ended.Done()
	}
	switch {
	case err != nil:
		p.abandon(f, err)
	case done:
		p.batchCompleted(f.token)
	case f.way == ByNotify && time.Now().After(f.until):
		if err := f.out.Notify(f.token); err != nil {
			p.abandon(f, err)
		}
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
