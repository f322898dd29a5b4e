package streams

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"millrace/internal/device"
)

// This file detects that a device hangs: a kernel doesn't end, or its completion doesn't arrive. It checks each batch
// in flight separately, so that other batches that make progress don't hide a stuck one.

// flightClock measures how long a batch has been at the head of its streams. Pipeline.mu guards it.
type flightClock struct {
	since   time.Time     // when the batch reached the head
	ran     time.Duration // Pipeline.ran at that time
	waiting bool          // the submission waits for scratch that another batch holds; only that other batch can exceed its bound
}

// InFlightBatch describes the batch that has been at the head of its streams for longest. It is zero if no batch is in flight.
type InFlightBatch struct {
	Batch    uint64        // batch number on the pipeline
	Payloads int           // number of payloads
	Bytes    int           // size of the payloads
	Age      time.Duration // time in flight at the head of its streams
	Bound    time.Duration // longest permitted Age; 0 for no bound
	Others   int           // number of other batches in flight

	batch *Batch
	token uint64
}

// checkTimeout is how long a device may take to answer a check before it counts as hung.
const checkTimeout = 2 * time.Second

// The deadline check runs ticksPerDeadline times within the shortest bound, at intervals between shortestTick and
// longestTick.
const (
	ticksPerDeadline = 20
	shortestTick     = time.Millisecond
	longestTick      = 500 * time.Millisecond
)

func (d Deadline) tick() time.Duration {
	return min(max(d.Min/ticksPerDeadline, shortestTick), longestTick)
}

// watchDeadlines ends the pipeline when a batch exceeds its bound. It returns then, or when ctx is done.
func (p *Pipeline) watchDeadlines(ctx context.Context) {
	every := p.cfg.Deadline.tick()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ran := (runClock{time.Now(), every}); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		p.addRunTime(ran.tick(time.Now()))
		if f := p.Oldest(); f.batch != nil && f.Age > f.Bound && p.hang(f) {
			return
		}
	}
}

// runClock measures how long the process has run. The caller must call tick at the interval every.
type runClock struct {
	last  time.Time
	every time.Duration
}

// tick returns how long the process has run since the last tick, at most two intervals. A longer gap means that the
// process was stopped, suspended or starved of CPU time, so it doesn't count against the device.
func (r *runClock) tick(now time.Time) time.Duration {
	ran := min(now.Sub(r.last), 2*r.every)
	r.last = now
	return ran
}

// addRunTime adds time during which the process ran.
func (p *Pipeline) addRunTime(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran += d
}

// Oldest returns the batch in flight that has used the largest share of its bound. It makes no call to the device.
func (p *Pipeline) Oldest() (oldest InFlightBatch) {
	if p.cfg.Deadline.Max == 0 {
		return InFlightBatch{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	count, used := 0, -1.0
	for _, b := range p.slots {
		if b.phase != inFlight {
			continue
		}
		count++
		if !p.leads(b) {
			continue
		}
		f := InFlightBatch{
			Batch: b.record.Batch, Payloads: b.Rows(), Bytes: b.bytes,
			Age: p.ran - b.clock.ran, Bound: p.bound(b), batch: b, token: b.token,
		}
		if share := float64(f.Age) / float64(f.Bound); share > used {
			oldest, used = f, share
		}
	}
	if oldest.batch != nil {
		oldest.Others = count - 1
	}
	return oldest
}

// leads reports whether b is at the head of its streams, so that no other batch delays it. A batch that is still being
// submitted may wait for any batch in flight. The caller holds p.mu.
func (p *Pipeline) leads(b *Batch) bool {
	if b.clock.waiting {
		return false
	}
	for _, o := range p.slots {
		if o != b && o.onDevice() && o.token < b.token && (b.submitting || o.route.meets(b.route)) {
			return false
		}
	}
	return true
}

// bound returns how long b may be in flight. The caller holds p.mu.
func (p *Pipeline) bound(b *Batch) time.Duration {
	d := p.cfg.Deadline
	return d.bound(p.usual.estimate(b.work(), d.Max), len(p.lanes))
}

func (b *Batch) work() int {
	return workOf(b.bytes, b.Rows(), b.longest, b.pipe.info.Units)
}

// startClock starts the clock of a batch that has reached the head of its streams. The caller holds p.mu.
func (b *Batch) startClock() { b.clock = flightClock{since: time.Now(), ran: b.pipe.ran} }

// finishTurn records how long b, which has completed, was in flight. It then starts the clocks of the batches behind b
// on its streams. Only later submissions count as behind b, so other batches can't hide a stuck batch for long. The
// caller holds p.mu.
func (p *Pipeline) finishTurn(b *Batch) {
	d := p.cfg.Deadline
	if d.Max == 0 {
		return
	}
	if !b.stepped { // otherwise the clock has started after all operators but the last
		took := min(time.Since(b.clock.since), p.ran-b.clock.ran+2*d.tick())
		p.usual.learn(b.work(), min(took, d.Max))
	}
	for _, o := range p.slots {
		if o.onDevice() && o.token > b.token && o.route.meets(b.route) {
			o.startClock()
		}
	}
}

// meets reports whether two routes have a stream in common.
func (r route) meets(o route) bool {
	for _, s := range []device.Stream{r.in, r.kern, r.out} {
		if s == o.in || s == o.kern || s == o.out {
			return true
		}
	}
	return false
}

// hang ends the pipeline because of f, unless f's batch completes while the device is being checked.
func (p *Pipeline) hang(f InFlightBatch) bool {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err := p.hangError(f, p.dev.Check(ctx))
	p.mu.Lock()
	if f.batch.phase != inFlight || f.batch.token != f.token {
		p.mu.Unlock()
		return false
	}
	over := p.err != nil
	err = p.attribute(err)
	p.hung = err
	p.mu.Unlock()
	p.fail(err)
	if over { // the pipeline is being closed, and fail doesn't report the error then
		p.reportError(err)
	}
	close(p.stuck)
	return true
}

// hangError returns the error for a device on which f doesn't complete. answer is the result of its check. If the
// device reports that it is lost, the returned error wraps that loss.
func (p *Pipeline) hangError(f InFlightBatch, answer error) error {
	names := make([]string, len(p.cfg.Operators))
	for i, op := range p.cfg.Operators {
		names[i] = op.String()
	}
	diagnosis := "the device answers, so a kernel is stuck or its completion was lost"
	if answer != nil {
		diagnosis = "the device check failed: " + answer.Error()
	}
	if errors.Is(answer, device.ErrLost) {
		return fmt.Errorf("batch %d (%d payloads, %d bytes) was in flight for %v: %w",
			f.Batch, f.Payloads, f.Bytes, f.Age.Round(time.Millisecond), answer)
	}
	return device.Errorf("await batch", p.info.ID, device.ErrHung,
		"batch %d (%d payloads, %d bytes, operators %s) has been in flight for %v, longer than the bound of %v "+
			"(MILLRACE_BATCH_DEADLINE_MIN, MILLRACE_BATCH_DEADLINE_MAX); %s",
		f.Batch, f.Payloads, f.Bytes, strings.Join(names, ","), f.Age.Round(time.Millisecond), f.Bound, diagnosis)
}

// Hung returns why the device counts as hung: a batch did not complete within its Deadline. It returns nil otherwise. A
// hung device may still write to the pipeline's memory, so that memory is never freed.
func (p *Pipeline) Hung() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// Deadline bounds how long a batch may be in flight before its device counts as hung. The bound is timesUsual times the
// usual time of batches of its size, multiplied by the number of lanes and limited to the range from Min to Max. Time
// counts only while the process runs, and only after the earlier batches on the same streams have completed. The zero
// Deadline sets no bound.
type Deadline struct {
	Min time.Duration // smallest bound, so that a short delay doesn't count as a hang
	Max time.Duration // largest bound, and the bound until a first batch has completed; 0 for no bound at all
}

// timesUsual is how many times its usual duration a batch may take, per lane. All lanes share the device, so with all
// lanes in flight a batch takes that many times longer than alone.
const timesUsual = 8

func (d Deadline) check() error {
	if d.Max != 0 && (d.Min < time.Millisecond || d.Max < d.Min) {
		return fmt.Errorf("streams: deadline bounds %v and %v, want at least 1ms and the smaller one first", d.Min, d.Max)
	}
	return nil
}

// bound returns how long a batch may take, given the usual time for its size. A usual time of 0 means that it is
// unknown.
func (d Deadline) bound(usual time.Duration, lanes int) time.Duration {
	times := time.Duration(timesUsual * lanes)
	if usual == 0 || usual > d.Max/times {
		return d.Max
	}
	return max(usual*times, d.Min)
}

// usualTimes holds the longest recent time in flight for each size of work.
type usualTimes [64]time.Duration // indexed by the bit length of the work; 0 if no batch of that size has completed

// decay is the divisor by which each batch lowers the longest time of its size, so that a single slow batch doesn't
// count forever. After 44 batches half of it is gone.
const decay = 64

// workOf returns the size of a batch in bytes, plus one per payload. A single unit of the device, such as a core, may
// process a whole payload. So the longest payload counts as if every unit had one of that size.
func workOf(bytes, rows, longest, units int) int {
	return max(bytes, longest*max(units, 1)) + rows
}

// learn records how long a batch took.
func (u *usualTimes) learn(work int, took time.Duration) {
	longest := &u[bits.Len(uint(work))]
	*longest = max(*longest-*longest/decay, took, 1)
}

// estimate returns how long a batch is expected to take at most, limited to limit. It uses the time recorded for the
// batch's size or the next larger size, or else scales up the time of the largest smaller size. It returns 0 if no
// batch has completed.
func (u *usualTimes) estimate(work int, limit time.Duration) time.Duration {
	size := bits.Len(uint(work))
	for _, longest := range u[size:] {
		if longest > 0 {
			return min(longest, limit)
		}
	}
	for smaller := size - 1; smaller >= 0; smaller-- {
		longest, doublings := u[smaller], size-smaller
		switch {
		case longest == 0:
		case longest > limit>>doublings:
			return limit
		default:
			return longest << doublings
		}
	}
	return 0
}
