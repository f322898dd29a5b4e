package streams

import (
	"context"
	"runtime"
	"slices"
	"time"

	"millrace/internal/device"
)

// This file polls the device for completed batches. A notification by the device costs more. It delays the next work on
// the stream, and involves the driver's thread, a file descriptor and the scheduler.

// smallBatch is the maximum size of a batch that Submit polls, in payload bytes. Larger batches take too long to poll
// for.
const smallBatch = 256 << 10

// polled is a batch in flight whose completion event is polled.
type polled struct {
	batch *Batch
	token uint64
	out   device.Stream // stream of the event and, if used, of the notification
	ended device.Event
	until time.Time // time at which the submitter stops polling; zero if the submitter doesn't poll
}

// spin polls a batch on the submitter's goroutine until the batch completes. At f.until, it hands the batch over to the
// method in Schedule.Completion.
func (p *Pipeline) spin(f polled) {
	defer p.pollers.Done()
	for !p.poll(f) {
		if time.Now().Before(f.until) {
			runtime.Gosched()
			continue
		}
		if p.schedule.Completion == ByAdaptivePolling {
			p.toPoll <- f // the channel has capacity for every batch, so the send never blocks
		} else if err := f.out.Notify(f.token); err != nil {
			p.abandon(f, err)
		}
		return
	}
}

// pollAll polls the batches that arrive through p.toPoll until each completes. It returns when ctx is done.
func (p *Pipeline) pollAll(ctx context.Context) {
	runtime.LockOSThread() // preciseTimers applies to one thread
	defer runtime.UnlockOSThread()
	preciseTimers()
	var pause adaptivePoll
	var batches []polled
	for ctx.Err() == nil {
		if len(batches) == 0 {
			select {
			case f := <-p.toPoll:
				batches = append(batches, f)
				pause.since = time.Now()
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
			shortSleep(pause.next())
		} else {
			pause.came()
		}
	}
}

// sweep completes the batches that have ended and returns the batches that are still in flight. It polls a batch only
// if all earlier batches of its queue have ended.
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

// poll completes f's batch if it has ended, or fails it if its event reports an error. It returns false if the batch
// must be polled again.
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

// abandon fails f's batch because its completion can't be determined. It first drains the lane, so that no work uses
// the batch's buffers. If the device is lost, abandon ends the pipeline.
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

// adaptivePoll chooses the pauses between polls. A pause is a quarter of the recent time between completions, so a few
// polls find each completion soon after it happens.
type adaptivePoll struct {
	since time.Time     // start of the wait for the next completion
	pace  time.Duration // moving average of the time between completions
}

// The bounds of a pause. Shorter pauses cost mostly kernel time. Longer pauses save no more CPU time.
const (
	shortestPause = 5 * time.Microsecond
	longestPause  = 200 * time.Microsecond
)

// came records that a batch has completed, and begins the next wait.
func (a *adaptivePoll) came() {
	now := time.Now()
	a.learn(now.Sub(a.since))
	a.since = now
}

// learn adds the duration of one wait to the moving average.
func (a *adaptivePoll) learn(waited time.Duration) { a.pace += (waited - a.pace) / 4 }

// next returns the pause before the next poll.
func (a *adaptivePoll) next() time.Duration { return min(max(a.pace/4, shortestPause), longestPause) }
