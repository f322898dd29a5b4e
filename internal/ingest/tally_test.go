package ingest

import (
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
)

// tally is an Observer that counts reports.
type tally struct {
	mu        sync.Mutex
	outcomes  [inflight.NumOutcomes]int
	inputs    map[input]bool // inputs with a stored result
	again     int
	reconnect int
	stuck     int // number of stalled consumers in the last report
	faults    []inflight.OperatorFault
	letters   map[string]int // reported dead letters by sequence and record
	leftOut   int            // dead letters without their payload
	frames    []inflight.FrameStats
	logged    int // bytes stored in logs of states
	replayed  int // bytes read from them
	entries   int // number of entries read from them
	untrimmed int // number of failures to trim them
	changed   chan struct{}
}

// input identifies an input uniquely, even after its stream is recreated.
type input struct {
	sequence uint64
	stored   int64 // in Unix nanoseconds
}

func newTally() *tally {
	return &tally{inputs: map[input]bool{}, letters: map[string]int{}, changed: make(chan struct{}, 1)}
}

// note changes c and signals the change.
func (c *tally) note(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// hasResult implements Options.settled.
func (c *tally) hasResult(sequence uint64, stored time.Time) {
	c.note(func() { c.inputs[input{sequence, stored.UnixNano()}] = true })
}

func (c *tally) Settled(o inflight.Outcome, _, _ int, _, _ time.Duration) {
	c.note(func() { c.outcomes[o]++ })
}

func (c *tally) DeadLettered(l inflight.DeadLetter) {
	c.note(func() { c.letters[fmt.Sprintf("%d %d %s", l.Sequence, l.Record, l.Reason)]++ })
}

func (c *tally) Frame(s inflight.FrameStats) { c.note(func() { c.frames = append(c.frames, s) }) }
func (c *tally) PayloadLeftOut()             { c.note(func() { c.leftOut++ }) }
func (c *tally) OperatorFault(f inflight.OperatorFault) {
	c.note(func() { c.faults = append(c.faults, f) })
}
func (c *tally) Redelivered()            { c.note(func() { c.again++ }) }
func (c *tally) Stalled(n int)           { c.note(func() { c.stuck = n }) }
func (c *tally) Reconnected()            { c.note(func() { c.reconnect++ }) }
func (c *tally) Trim(uint64, trim.State) {}
func (c *tally) Restarted()              {}
func (c *tally) StateLogged(n int)       { c.note(func() { c.logged += n }) }
func (c *tally) StateReplayed(n int) {
	c.note(func() { c.replayed, c.entries = c.replayed+n, c.entries+1 })
}
func (c *tally) StateTrimFailed()      { c.note(func() { c.untrimmed++ }) }
func (c *tally) Pending(uint64)        {}
func (c *tally) Unacknowledged(uint64) {}

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

func (c *tally) read(n *int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *n
}

func (c *tally) count(o inflight.Outcome) int { return c.read(&c.outcomes[o]) }
func (c *tally) stalledNow() int              { return c.read(&c.stuck) }
func (c *tally) redelivered() int             { return c.read(&c.again) }
func (c *tally) reconnects() int              { return c.read(&c.reconnect) }

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

// batches is an inflight.RecordObserver and an inflight.BatchObserver that keeps the records of batches.
type batches struct {
	mu      sync.Mutex
	list    []inflight.Record
	payload func(batch int, p inflight.Payload) // is called for each payload; nil for none
}

// observeRecords makes later workers report their batches.
func (r *rig) observeRecords() *batches {
	seen := &batches{}
	r.opts.Records = seen
	return seen
}

// observePayloads makes later workers report their batches and payloads. batch is the index of a record.
func (r *rig) observePayloads(payload func(batch int, p inflight.Payload)) *batches {
	seen := &batches{payload: payload}
	r.opts.Batches = seen
	return seen
}

func (l *batches) BatchDone(r *inflight.Record) {
	l.mu.Lock()
	l.list = append(l.list, *r)
	l.mu.Unlock()
}

func (l *batches) BatchEnded(r *inflight.Record, payloads iter.Seq[inflight.Payload]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range payloads {
		l.payload(len(l.list), p)
	}
	l.list = append(l.list, *r)
}

func (l *batches) all() []inflight.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// of returns all records of a device so far.
func (l *batches) of(device string) []inflight.Record {
	return slices.DeleteFunc(l.all(), func(r inflight.Record) bool { return r.Device != device })
}

// batchOf returns the record of batch n, counted from 1. That batch must have ended.
func batchOf(t testing.TB, list []inflight.Record, n uint64) inflight.Record {
	t.Helper()
	at := slices.IndexFunc(list, func(r inflight.Record) bool { return r.Batch == n })
	if at < 0 {
		t.Fatalf("no record of batch %d among %d", n, len(list))
	}
	return list[at]
}
