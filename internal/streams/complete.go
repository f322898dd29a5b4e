package streams

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// This file hands completed batches back. The device notifies, or the pipeline polls. Polling costs the device and the
// driver less than a notification: a notification or an interrupt after each batch delays the next work on its stream, and
// involves the driver's thread, a file descriptor and the scheduler.

// complete takes completions from the device until ctx is done or the device is lost.
func (p *Pipeline) complete(ctx context.Context) {
	for {
		token, err := p.dev.WaitCompletion(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.fail(err)
			}
			return
		}
		p.batchCompleted(token)
	}
}

// batchCompleted hands back the batch with this token. It ignores a token that matches no batch in flight: that batch
// has already failed, or it belongs to an earlier pipeline on the same device that was closed with work in flight.
func (p *Pipeline) batchCompleted(token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slot := token & (1<<slotBits - 1)
	if slot >= uint64(len(p.slots)) {
		return
	}
	b := p.slots[slot]
	if b.phase != inFlight || b.token != token {
		return
	}
	if b.probe == nil {
		b.record.Err = b.failure() // a probe compares failures with those that it knows
	}
	b.untimed = true
	p.untimed = append(p.untimed, b)
	p.finishTurn(b)
	p.end(b)
}

// failure returns the error of an operator that has left no results for the batch, or nil. Running parts of the batch shows which record
// is the cause.
func (b *Batch) failure() error {
	for i, op := range b.pipe.cfg.Operators {
		f, ok := op.(operator.Faulty)
		if !ok {
			continue
		}
		if why := f.FailedBatch(b.Results(i), b.Rows()); why != "" {
			return device.Attribute(&operator.BatchError{Text: why}, op.Name())
		}
	}
	return nil
}

// end takes the batch out of flight and sends it to Completed or to its probe. The caller holds p.mu.
func (p *Pipeline) end(b *Batch) {
	p.leaveFlight(b, done)
	switch {
	case b.probe == nil:
		p.completed <- b
	case b.probe.abandoned:
		go b.Release() // Release locks p.mu
	default:
		b.probe.back <- struct{}{} // the channel is buffered, so this never blocks
	}
}

// leaveFlight takes a batch out of flight and wakes the goroutines that wait for that. The caller holds p.mu.
func (p *Pipeline) leaveFlight(b *Batch, to phase) {
	b.lane.move(b, to)
	b.closeRange()
	p.inFlight--
	p.ended++
	if b.probe == nil {
		p.progress = time.Now()
	}
	p.changed.Broadcast()
}

// fail ends the pipeline because the device is lost. Every batch in flight comes back with err.
func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	first := p.err == nil
	if first {
		err = p.attribute(err)
		p.err, p.endedAt = err, time.Now()
	}
	for _, b := range p.slots {
		if b.phase == inFlight && !b.submitting { // Submit returns a batch that is still being submitted
			b.record.Err = err
			p.end(b)
		}
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	if first {
		p.reportError(err)
		close(p.over)
	}
}

func (p *Pipeline) reportError(err error) { p.reportKind(device.Kind(err)) }

func (p *Pipeline) reportKind(kind string) {
	if p.cfg.Observer != nil {
		p.observing.Lock()
		p.cfg.Observer.DeviceError(p.info.ID, kind)
		p.observing.Unlock()
	}
}

// smallBatch is the largest batch that Submit polls, in payload bytes. Larger batches take too long for that.
const smallBatch = 256 << 10

// polled is a batch in flight whose completion event is polled.
type polled struct {
	batch *Batch
	token uint64
	out   device.Stream // the stream with the event, and with the notification if there is one
	ended device.Event
	until time.Time // when the submitter stops polling; zero if the submitter doesn't poll
}

// spin polls a batch on the submitter's goroutine until it completes or f.until has passed. After that, the batch
// completes in the way that the schedule selects.
func (p *Pipeline) spin(f polled) {
	defer p.pollers.Done()
	for !p.poll(f) {
		if time.Now().Before(f.until) {
			runtime.Gosched()
			continue
		}
		if p.schedule.Completion == ByAdaptivePolling {
			p.toPoll <- f // the channel has capacity for every batch, so this never blocks
		} else if err := f.out.Notify(f.token); err != nil {
			p.abandon(f, err)
		}
		return
	}
}

// pollAll polls the batches that arrive through p.toPoll until each completes. It returns when ctx is done.
func (p *Pipeline) pollAll(ctx context.Context) {
	var pause adaptivePoll
	defer pause.begin()()
	var batches []polled
	for ctx.Err() == nil {
		if len(batches) == 0 {
			select {
			case f := <-p.toPoll:
				batches = append(batches, f)
				pause.restart()
			case <-ctx.Done():
				return
			}
		}
		for range len(p.toPoll) {
			batches = append(batches, <-p.toPoll)
		}
		before := len(batches)
		batches = p.sweep(batches)
		if len(batches) == before {
			pause.sleep()
		} else {
			pause.came()
		}
	}
}

// sweep completes the batches that have ended and returns the others. It polls the oldest batch of each queue first,
// and a later one only if the earlier ones have ended.
func (p *Pipeline) sweep(batches []polled) []polled {
	p.pendingQueues = p.pendingQueues[:0]
	return slices.DeleteFunc(batches, func(f polled) bool {
		if slices.Contains(p.pendingQueues, f.out) {
			return false
		}
		ended := p.poll(f)
		if !ended {
			p.pendingQueues = append(p.pendingQueues, f.out)
		}
		return ended
	})
}

// poll checks whether a batch has ended, and completes it. It returns true if there is nothing left to poll.
func (p *Pipeline) poll(f polled) bool {
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

// abandon fails a batch, once nothing uses its buffers, if its completion can't be determined.
func (p *Pipeline) abandon(f polled, err error) {
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

func (p *Pipeline) failed(f polled, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.batch.phase != inFlight || f.batch.token != f.token {
		return false
	}
	f.batch.record.Err = err
	p.end(f.batch)
	return true
}

// adaptivePoll chooses the pauses between polls. A pause is a quarter of the recent time between completions. So a few
// polls find each completion, and a completion is noticed soon after it happens.
type adaptivePoll struct {
	since time.Time     // when the wait for the next completion began
	pace  time.Duration // recent time between completions
}

// The bounds of one pause. A shorter pause costs mostly kernel time; a longer one saves nothing.
const (
	shortestPause = 5 * time.Microsecond
	longestPause  = 200 * time.Microsecond
)

// begin prepares the calling goroutine for short sleeps. The caller must call end afterwards to undo that.
func (a *adaptivePoll) begin() (end func()) {
	runtime.LockOSThread()
	preciseTimers()
	return runtime.UnlockOSThread
}

// restart starts the wait for a batch when none was in flight before.
func (a *adaptivePoll) restart() { a.since = time.Now() }

// came records that a batch has completed while other batches are in flight.
func (a *adaptivePoll) came() {
	now := time.Now()
	a.learn(now.Sub(a.since))
	a.since = now
}

// learn records how long the wait for a completion took.
func (a *adaptivePoll) learn(waited time.Duration) { a.pace += (waited - a.pace) / 4 }

func (a *adaptivePoll) sleep() { shortSleep(a.next()) }

func (a *adaptivePoll) next() time.Duration { return min(max(a.pace/4, shortestPause), longestPause) }
