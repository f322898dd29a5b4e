package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"millrace/internal/device"
)

// What notices that a device hangs: a kernel does not end, or an end does not come. Each batch in flight is judged by
// itself, so that others that move on do not hide it.

// flightClock measures how long a batch has been at the head of its streams. Guarded by the pipeline's mutex.
type flightClock struct {
	since   time.Time     // when its turn came
	ran     time.Duration // what Pipeline.ran read then
	waiting bool          // for scratch, on the host: another batch is in its way, and is judged itself
}

// Flight describes the batch that has been at the head of its streams for longest. It is zero where none is in flight.
type Flight struct {
	Batch    uint64        // its number
	Payloads int           // how many it holds
	Bytes    int           // of the payloads
	Age      time.Duration // for how long it has been in flight, behind no other batch
	Bound    time.Duration // how long it may be; 0 for any time
	Others   int           // batches in flight beside it

	batch *Batch
	token uint64
}

// checkTimeout is how long a device has to answer whether it works before it is given up.
const checkTimeout = 2 * time.Second

// The watch of deadlines looks ticksPerDeadline times in the shortest bound, and no more often than each shortestTick and
// no less often than each longestTick.
const (
	ticksPerDeadline = 20
	shortestTick     = time.Millisecond
	longestTick      = 500 * time.Millisecond
)

func (d Deadline) tick() time.Duration {
	return min(max(d.Min/ticksPerDeadline, shortestTick), longestTick)
}

// watchDeadlines ends the pipeline when a batch has been in flight for longer than its bound, until ctx is done.
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
		p.pass(ran.tick(time.Now()))
		if f := p.Oldest(); f.batch != nil && f.Age > f.Bound && p.hang(f) {
			return
		}
	}
}

// runClock measures how long the process has run. It must tick each every.
type runClock struct {
	last  time.Time
	every time.Duration
}

// tick returns how long the process has run since the last tick. A longer time than two ticks was spent stopped, with
// the machine suspended, or without a processor, and counts as two: it says nothing about the device.
func (c *runClock) tick(now time.Time) time.Duration {
	ran := min(now.Sub(c.last), 2*c.every)
	c.last = now
	return ran
}

// pass counts time in which the process ran.
func (p *Pipeline) pass(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ran += d
}

// Oldest returns the batch in flight that is to be judged first: the one that has used up most of its bound. It makes no
// call to the device.
func (p *Pipeline) Oldest() (oldest Flight) {
	if p.cfg.Deadline.Max == 0 {
		return Flight{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	flying, used := 0, -1.0
	for _, b := range p.slots {
		if b.phase != inFlight {
			continue
		}
		flying++
		if !p.leads(b) {
			continue
		}
		f := Flight{
			Batch: b.record.Batch, Payloads: b.Rows(), Bytes: b.bytes,
			Age: p.ran - b.clock.ran, Bound: p.bound(b), batch: b, token: b.token,
		}
		if share := float64(f.Age) / float64(f.Bound); share > used {
			oldest, used = f, share
		}
	}
	if oldest.batch != nil {
		oldest.Others = flying - 1
	}
	return oldest
}

// leads reports whether b is at the head of its streams, so that only itself holds it up. One that is being submitted
// may wait for any batch in flight. p.mu is held.
func (p *Pipeline) leads(b *Batch) bool {
	if b.clock.waiting {
		return false
	}
	for _, o := range p.slots {
		if o != b && o.flying() && o.token < b.token && (b.submitting || o.route.meets(b.route)) {
			return false
		}
	}
	return true
}

// bound is how long b may be in flight. p.mu is held.
func (p *Pipeline) bound(b *Batch) time.Duration {
	d := p.cfg.Deadline
	return d.bound(p.usual.of(b.work(), d.Max), len(p.lanes))
}

func (b *Batch) work() int {
	return workOf(b.bytes, b.Rows(), b.longest, b.pipe.info.Units)
}

// begin starts the clock of a batch whose turn comes. p.mu is held.
func (b *Batch) begin() { b.clock = flightClock{since: time.Now(), ran: b.pipe.ran} }

// passOn takes in how long b was in flight, which has come back, and starts the clocks of those behind it on its streams.
// Only those that were submitted later are behind it, so what holds up a batch is not hidden by others for long. p.mu is
// held.
func (p *Pipeline) passOn(b *Batch) {
	d := p.cfg.Deadline
	if d.Max == 0 {
		return
	}
	took := min(time.Since(b.clock.since), p.ran-b.clock.ran+2*d.tick())
	p.usual.learn(b.work(), min(took, d.Max))
	for _, o := range p.slots {
		if o.flying() && o.token > b.token && o.route.meets(b.route) {
			o.begin()
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

// hang ends the pipeline because of f, unless the batch comes back while the device is asked whether it works.
func (p *Pipeline) hang(f Flight) bool {
	err := p.hungBy(f, p.inquire(checkTimeout))
	p.mu.Lock()
	if f.batch.phase != inFlight || f.batch.token != f.token {
		p.mu.Unlock()
		return false
	}
	over := p.err != nil
	p.hung = err
	p.mu.Unlock()
	p.fail(err)
	if over { // it is being closed, and fail does not report that
		p.reportError(err)
	}
	close(p.stuck)
	return true
}

// inquire asks the device whether it works. A device that hangs may not even return from the call, so another goroutine
// makes it and is left behind.
func (p *Pipeline) inquire(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	said := make(chan error, 1)
	go func() {
		defer cancel()
		said <- p.dev.Check(ctx)
	}()
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-said:
		return err
	default:
		return device.Errorf("check", p.info.ID, device.ErrNotReady, "no answer within %v", timeout)
	}
}

// hungBy is the error of a device on which f does not end and that gives answer when it is asked whether it works. A loss
// that the device knows itself stays what it is.
func (p *Pipeline) hungBy(f Flight, answer error) error {
	names := make([]string, len(p.cfg.Operators))
	for i, op := range p.cfg.Operators {
		names[i] = op.String()
	}
	said := "the device answers, so a kernel does not end or its end was lost"
	if answer != nil {
		said = "asked whether it works, the device answers: " + answer.Error()
	}
	if errors.Is(answer, device.ErrLost) {
		return fmt.Errorf("batch %d (%d payloads, %d bytes) was in flight for %v: %w",
			f.Batch, f.Payloads, f.Bytes, f.Age.Round(time.Millisecond), answer)
	}
	return device.Errorf("await batch", p.info.ID, device.ErrHung,
		"batch %d (%d payloads, %d bytes, operators %s) has been in flight for %v, and %v is the bound "+
			"(MILLRACE_BATCH_DEADLINE_MIN, MILLRACE_BATCH_DEADLINE_MAX); %s",
		f.Batch, f.Payloads, f.Bytes, strings.Join(names, ","), f.Age.Round(time.Millisecond), f.Bound, said)
}

// Hung is why the device counts as hung: a batch did not end within its Deadline. It is nil while it does not. The
// device may still write to the pipeline's memory then, so that is never given back.
func (p *Pipeline) Hung() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}
