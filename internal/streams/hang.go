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

// This file detects hung devices. On a hung device, a kernel doesn't end or its completion doesn't arrive. Each batch
// in flight and each state call has its own clock, because others may progress while one is stuck.

// flightClock measures the time that a batch has spent at the head of its streams. Pipeline.mu guards it.
type flightClock struct {
	since time.Time     // time at which the batch reached the head
	ran   time.Duration // value of Pipeline.ran at that time
	// waiting is set while the submission waits for scratch that another batch holds. A waiting batch can't exceed its
	// bound.
	waiting bool
}

// InFlightBatch describes a batch in flight and its bound (see Pipeline.Oldest).
type InFlightBatch struct {
	Batch    uint64        // batch number on the pipeline
	Payloads int           // number of payloads
	Bytes    int           // size of the payloads
	Age      time.Duration // time in flight at the head of its streams
	Bound    time.Duration // longest permitted Age
	Others   int           // number of other batches in flight

	batch *Batch
	token uint64
}

// checkTimeout is the time limit for the device check after a batch has exceeded its bound.
const checkTimeout = 2 * time.Second

// The deadline check runs ticksPerDeadline times within the shortest bound. Its interval stays between shortestTick and
// longestTick.
const (
	ticksPerDeadline = 20
	shortestTick     = time.Millisecond
	longestTick      = 500 * time.Millisecond
)

func (d Deadline) tick() time.Duration {
	return min(max(d.Min/ticksPerDeadline, shortestTick), longestTick)
}

// watchDeadlines ends the pipeline and returns when a batch or a call of a state exceeds its bound. It also returns when ctx is done.
func (p *Pipeline) watchDeadlines(ctx context.Context) {
	every := p.o.Deadline.tick()
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
		if c := p.overdueCall(); c != nil && p.hangCall(c) {
			return
		}
	}
}

// runClock measures the time that the process has run. The field every is the interval at which the caller must call
// tick.
type runClock struct {
	last  time.Time
	every time.Duration
}

// tick returns the time that the process has run since the last tick, at most two intervals. After a longer gap, the
// process was stopped, suspended or starved of CPU time. The excess must not count against the device.
func (r *runClock) tick(now time.Time) time.Duration {
	ran := min(now.Sub(r.last), 2*r.every)
	r.last = now
	return ran
}

func (p *Pipeline) addRunTime(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran += d
}

// Oldest returns the batch in flight that has used the largest share of its bound. It returns a zero value if no batch
// is at the head of its streams, or if the pipeline has no Deadline. It makes no call to the device.
func (p *Pipeline) Oldest() (oldest InFlightBatch) {
	if p.o.Deadline.Max == 0 {
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

// leads reports whether b is at the head of its streams: no earlier batch on the device can delay it. While b is still
// being submitted, any earlier batch on the device may delay it. The caller holds p.mu.
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

// bound returns the longest time that b may be in flight. The caller holds p.mu.
func (p *Pipeline) bound(b *Batch) time.Duration {
	d := p.o.Deadline
	return d.bound(p.usual.estimate(b.work(), d.Max), len(p.lanes))
}

func (b *Batch) work() int {
	return workOf(b.bytes, b.Rows(), b.longest, b.pipe.info.Units)
}

// startClock starts the clock of a batch that has reached the head of its streams. The caller holds p.mu.
func (b *Batch) startClock() { b.clock = flightClock{since: time.Now(), ran: b.pipe.ran} }

// finishTurn records the time in flight of the completed batch b. It restarts the clocks of the later batches on b's
// streams. Earlier batches keep their clocks, so a stuck batch can't stay undetected because others complete. The
// caller holds p.mu.
func (p *Pipeline) finishTurn(b *Batch) {
	d := p.o.Deadline
	if d.Max == 0 {
		return
	}
	if !b.stepped { // the clock of a stepped batch starts only before its last operator
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

// hang checks the device and ends the pipeline, unless f's batch completes during the check. It reports whether it
// ended the pipeline.
func (p *Pipeline) hang(f InFlightBatch) bool {
	names := make([]string, len(p.o.Operators))
	for i, op := range p.o.Operators {
		names[i] = op.String()
	}
	which := fmt.Sprintf("batch %d (%d payloads, %d bytes, operators %s)", f.Batch, f.Payloads, f.Bytes, strings.Join(names, ","))
	return p.endHung("await batch", fmt.Sprintf("%s has been in flight for %v, longer than the bound of %v (MILLRACE_BATCH_DEADLINE_MIN, MILLRACE_BATCH_DEADLINE_MAX)",
		which, f.Age.Round(time.Millisecond), f.Bound), "", func() bool { return f.batch.phase == inFlight && f.batch.token == f.token })
}

// hangCall does the same as hang for a call of a state.
func (p *Pipeline) hangCall(c *stateCall) bool {
	return p.endHung(c.name, fmt.Sprintf("the state of %s has not answered for longer than the bound of %v (MILLRACE_BATCH_DEADLINE_MAX)",
		c.of.operator, p.o.Deadline.Max), c.of.operator, func() bool {
		_, lasts := p.calls[c]
		return lasts
	})
}

// endHung checks the device and then ends the pipeline, unless lasts returns false. lasts runs under p.mu. call is the name of the call
// that doesn't end, and what describes it. operator is the operator to blame, or "" if it is unknown.
func (p *Pipeline) endHung(call, what, operator string, lasts func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	err := p.hangError(call, what, p.dev.Check(ctx))
	if operator != "" {
		err = attributeFault(err, operator)
	}
	p.mu.Lock()
	if !lasts() {
		p.mu.Unlock()
		return false
	}
	over := p.err != nil
	err = p.attribute(err)
	p.hung = err
	p.mu.Unlock()
	p.fail(err)
	if over { // fail reports no error for a pipeline that is already over
		p.reportError(err)
	}
	close(p.stuck)
	return true
}

// hangError returns the error for a call that doesn't end. answer is the result of the device check. The error wraps answer if answer is a
// loss of the device. Otherwise it wraps device.ErrHung.
func (p *Pipeline) hangError(call, what string, answer error) error {
	diagnosis := "the device answers, so a kernel is stuck or its completion was lost"
	if answer != nil {
		diagnosis = "the device check failed: " + answer.Error()
	}
	if errors.Is(answer, device.ErrLost) {
		return fmt.Errorf("%s: %w", what, answer)
	}
	return device.Errorf(call, p.info.ID, device.ErrHung, "%s; %s", what, diagnosis)
}

// Hung returns the error of the batch or state call that exceeded its bound. It returns nil if the device doesn't hang. A hung device may
// still write to the pipeline's memory, so the pipeline never frees that memory.
func (p *Pipeline) Hung() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// Deadline bounds the time that a batch may be in flight before its device is considered hung. The bound is the usual
// time of batches of the same size, times the number of lanes, times timesUsual. It is limited to the range from Min to
// Max. Time counts only while the process runs and the batch is at the head of its streams. The zero Deadline sets no
// bound.
type Deadline struct {
	Min time.Duration // smallest bound, so that a short delay isn't taken for a hang
	Max time.Duration // largest bound; applies until a first batch has completed; 0 means no bound
}

// timesUsual is the factor between the bound and the usual time of a batch, per lane. All lanes share the device. So
// with n lanes in flight, a batch takes up to n times as long as alone.
const timesUsual = 8

func (d Deadline) check() error {
	if d.Max != 0 && (d.Min < time.Millisecond || d.Max < d.Min) {
		return fmt.Errorf("streams: deadline bounds %v and %v, want at least 1ms and the smaller one first", d.Min, d.Max)
	}
	return nil
}

// bound returns the longest time that a batch may be in flight. usual is the usual time of batches of its size, or 0 if
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

// decay sets the decline of a recorded time: each batch lowers it by 1/decay. It halves in 44 batches.
const decay = 64

// workOf returns a batch's size in bytes plus one per payload. A single unit of the device, such as a core, may process
// a whole payload. Therefore the size is at least the size of one longest payload per unit.
func workOf(bytes, rows, longest, units int) int {
	return max(bytes, longest*max(units, 1)) + rows
}

// learn records took as the time in flight of a batch of the given work.
func (u *usualTimes) learn(work int, took time.Duration) {
	longest := &u[bits.Len(uint(work))]
	*longest = max(*longest-*longest/decay, took, 1)
}

// estimate returns the longest expected time in flight for a batch of the given work, at most limit. It uses the time of
// the same size or the next larger size. If neither is known, it scales up the time of the next smaller size. It returns
// 0 if no batch has completed.
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
