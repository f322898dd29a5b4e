package ingest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
	"millrace/internal/streams"
)

// tally is an Observer that counts reports.
type tally struct {
	mu        sync.Mutex
	outcomes  [inflight.NumOutcomes]int
	inputs    map[input]bool // inputs with a stored result
	again     int
	reconnect int
	stuck     int // number of stalled consumers in the last report
	anew      int // number of lease restarts
	trimmed   uint64
	faults    []inflight.OperatorFault
	letters   map[string]int // reported dead letters by sequence and record
	leftOut   int            // dead letters without their payload
	frames    []inflight.FrameStats
	changed   chan struct{}
}

// input identifies an input uniquely, even after its stream is recreated.
type input struct {
	sequence uint64
	stored   int64 // in Unix nanoseconds
}

func newTally() *tally { return &tally{inputs: map[input]bool{}, changed: make(chan struct{}, 1)} }

// hasResult implements Options.settled.
func (c *tally) hasResult(sequence uint64, stored time.Time) {
	c.mu.Lock()
	c.inputs[input{sequence, stored.UnixNano()}] = true
	c.mu.Unlock()
}

func (c *tally) Settled(o inflight.Outcome, _, _ int, _, _ time.Duration) {
	c.mu.Lock()
	c.outcomes[o]++
	c.mu.Unlock()
	c.signal()
}

func (c *tally) Frame(s inflight.FrameStats) {
	c.mu.Lock()
	c.frames = append(c.frames, s)
	c.mu.Unlock()
}

func (c *tally) DeadLettered(l inflight.DeadLetter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.letters == nil {
		c.letters = map[string]int{}
	}
	c.letters[fmt.Sprintf("%d %d %s", l.Sequence, l.Record, l.Reason)]++
}

func (c *tally) PayloadLeftOut() {
	c.mu.Lock()
	c.leftOut++
	c.mu.Unlock()
}

func (c *tally) OperatorFault(f inflight.OperatorFault) {
	c.mu.Lock()
	c.faults = append(c.faults, f)
	c.mu.Unlock()
	c.signal()
}

// operatorFaults returns the reported faults of operators, in the form "operator fault" or "operator fault earlier".
func (c *tally) operatorFaults() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		text := f.Operator + " " + f.Fault
		if f.Earlier {
			text += " earlier"
		}
		all = append(all, text)
	}
	return all
}

func (c *tally) Redelivered() { c.mu.Lock(); c.again++; c.mu.Unlock(); c.signal() }

func (c *tally) Stalled(n int) { c.mu.Lock(); c.stuck = n; c.mu.Unlock(); c.signal() }

func (c *tally) Trim(removed uint64, _ trim.State) {
	c.mu.Lock()
	c.trimmed += removed
	c.mu.Unlock()
	c.signal()
}

func (c *tally) Restarted() { c.mu.Lock(); c.anew++; c.mu.Unlock(); c.signal() }

func (c *tally) Pending(uint64)        {}
func (c *tally) Unacknowledged(uint64) {}

func (c *tally) Reconnected() { c.mu.Lock(); c.reconnect++; c.mu.Unlock(); c.signal() }

func (c *tally) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *tally) count(o inflight.Outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcomes[o]
}

func (c *tally) stalledNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stuck
}

func (c *tally) redelivered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again
}

// reconnects returns the number of restored connections.
func (c *tally) reconnects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reconnect
}

// stored returns the number of inputs that were acknowledged because of their result. It counts an input once even if
// it was delivered and acknowledged twice.
func (c *tally) stored() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inputs)
}

// await returns once n inputs have outcome o.
func (c *tally) await(t testing.TB, o inflight.Outcome, n int) {
	t.Helper()
	c.awaitFunc(t, o.String(), n, func() int { return c.count(o) })
}

func (c *tally) awaitStored(t testing.TB, n int) {
	t.Helper()
	c.awaitFunc(t, "stored", n, c.stored)
}

// awaitAcknowledged returns once n deliveries were acknowledged because of a result. An input that a recreated
// consumer delivers again counts again.
func (c *tally) awaitAcknowledged(t testing.TB, n int) {
	t.Helper()
	c.awaitFunc(t, "acknowledged", n, func() int { return c.count(inflight.Published) + c.count(inflight.Duplicate) })
}

func (c *tally) awaitFunc(t testing.TB, what string, n int, count func() int) {
	t.Helper()
	deadline := time.After(patience)
	for count() < n {
		select {
		case <-c.changed:
		case <-deadline:
			t.Fatalf("%d %s after %v, want %d", count(), what, patience, n)
		}
	}
}

type deviceErrors struct {
	mu    sync.Mutex
	kinds []string
}

func (e *deviceErrors) DeviceError(_, kind string) {
	e.mu.Lock()
	e.kinds = append(e.kinds, kind)
	e.mu.Unlock()
}

type records struct {
	mu   sync.Mutex
	list []inflight.Record
}

func (l *records) BatchDone(r *inflight.Record) {
	l.mu.Lock()
	l.list = append(l.list, *r)
	l.mu.Unlock()
}

// batch returns the record of batch n, counted from 1. That batch must have ended.
func (l *records) batch(t testing.TB, n uint64) inflight.Record {
	t.Helper()
	return batchOf(t, l.all(), n)
}

func batchOf(t testing.TB, list []inflight.Record, n uint64) inflight.Record {
	t.Helper()
	for _, r := range list {
		if r.Batch == n {
			return r
		}
	}
	t.Fatalf("no record of batch %d among %d", n, len(list))
	return inflight.Record{}
}

func (l *records) all() []inflight.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// of returns all records of a device so far.
func (l *records) of(device string) []inflight.Record {
	return slices.DeleteFunc(l.all(), func(r inflight.Record) bool { return r.Device != device })
}

// TestStoredCountsInputs delivers every input twice, because the first acknowledgements are lost with their consumer.
// Each input is settled twice and counted once.
func TestStoredCountsInputs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 20
	r.publish(n, document)
	for round := range 2 {
		run := r.run(hostDevice(t), streams.Options{})
		r.tally.awaitFunc(t, "settled", (round+1)*n, func() int { return r.tally.count(inflight.Published) + r.tally.count(inflight.Duplicate) })
		if err := run.drain(); err != nil {
			t.Fatal(err)
		}
		if got := r.tally.stored(); got != n {
			t.Errorf("round %d: %d inputs are stored, want %d", round, got, n)
		}
		if err := r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, r.opts.Consumer); err != nil {
			t.Fatal(err)
		}
		r.provision()
	}
	c := newTally()
	for _, at := range []int64{1, 1, 2} {
		c.hasResult(7, time.Unix(0, at))
	}
	if c.stored() != 2 {
		t.Errorf("%d inputs, want that of the first stream and that of the second with its number", c.stored())
	}
}
