package quarantine

import (
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

// MaxInRow is how many different payloads may fail alone on a device, one after another, while no other payload comes right. The device
// may still compute payloads of known content right. A stream has one payload that fails, or a few next to each other. With MaxInRow of
// them the device is to blame, and the worker stops. The number exceeds the last isolated batches of several payloads, and is small
// enough that a broken device costs seconds.
const MaxInRow = 16

// evidence records which payloads failed alone on a device, and whether others came right since. A payload is given up only with evidence
// that the payload, and not the device, is to blame.
type evidence struct {
	mu     sync.Mutex
	right  uint64                // batches of payloads that came right
	failed map[uint64]failedOnce // payloads that failed alone and were neither given up nor came right since, by sequence
	row    int                   // payloads that failed alone since a batch came right
}

// failedOnce is a payload that failed alone.
type failedOnce struct {
	stored time.Time // when the stream stored it, because a recreated stream reuses sequences
	right  uint64    // evidence.right then
	times  int       // how often it failed alone
	at     time.Time // when it last did
}

// mostRemembered bounds how many failed payloads are remembered for each device.
const mostRemembered = 1 << 16

// heldFor is how long a payload counts as held back after it failed: twice the longest time until it is redelivered.
const heldFor = 2 * inflight.MaxNakDelay

// cameRight notes that a batch of payloads has results.
func (e *evidence) cameRight() {
	e.mu.Lock()
	e.right++
	e.row = 0
	e.mu.Unlock()
}

// batches is how many batches of payloads came right so far.
func (e *evidence) batches() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.right
}

// Ruling is what follows when payloads fail alone.
type Ruling uint8

const (
	GiveUp        Ruling = iota // the payloads are to blame
	holdBack                    // undecided: they are delivered again later
	DeviceNotWell               // the device is to blame, though it computes payloads of known content right
)

func (r Ruling) String() string { return [...]string{"give up", "hold back", "not well"}[r] }

// rule judges payloads that each failed alone, between two probes that passed. limit is how often a payload is delivered
// before its count decides.
//
// If another payload came right since, they are to blame. If two or more failed and none came right, the device is. A single one is to
// blame if there is no other to compare it with. Otherwise it is held back. It is given up when it fails again after others came right,
// or when it was delivered, or has failed, limit times.
func (e *evidence) rule(failed []*inflight.Delivery, limit int, c Comparison) Ruling {
	if e.batches() > c.Since {
		return e.forget(failed)
	}
	if len(failed) > 1 {
		return DeviceNotWell
	}
	d := failed[0]
	before, again := e.note(d)
	switch {
	case max(e.inRow(), 1+c.Others) >= MaxInRow:
		return DeviceNotWell
	case again && (e.batches() > before.right || max(d.NumDelivered, before.times+1) >= limit):
		return e.forget(failed)
	case c.Idle():
		return e.forget(failed)
	}
	return holdBack
}

// note records a payload that failed alone, and returns what was recorded before.
func (e *evidence) note(d *inflight.Delivery) (before failedOnce, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, again = e.failed[d.Sequence]
	if again && before.stored.Equal(d.Stored) {
		e.failed[d.Sequence] = failedOnce{d.Stored, before.right, before.times + 1, time.Now()}
		return before, true
	}
	if e.failed == nil || len(e.failed) >= mostRemembered {
		e.failed = map[uint64]failedOnce{} // bounded; a forgotten payload is held back once more
	}
	e.failed[d.Sequence] = failedOnce{d.Stored, e.right, 1, time.Now()}
	e.row++
	return failedOnce{}, false
}

func (e *evidence) inRow() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.row
}

// forget removes payloads that are given up.
func (e *evidence) forget(failed []*inflight.Delivery) Ruling {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range failed {
		delete(e.failed, d.Sequence)
	}
	return GiveUp
}

// settled removes payloads that came right after all.
func (e *evidence) settled(items []inflight.Delivery) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failed) == 0 {
		return
	}
	for i := range items {
		delete(e.failed, items[i].Sequence)
	}
}

// holds reports whether a payload failed alone before and no other came right since. Among others it would prove nothing.
func (e *evidence) holds(d *inflight.Delivery) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.failed[d.Sequence]
	return ok && f.stored.Equal(d.Stored) && f.right == e.right
}

// held is how many payloads are held back.
func (e *evidence) held() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.failed {
		if time.Since(f.at) < heldFor {
			n++
		}
	}
	return n
}

// Comparison is what failing payloads are compared with.
type Comparison struct {
	Since  uint64      // Judge.Batches when the search for them began
	Others int         // other payloads that were computed alone to compare with, and failed too
	Idle   func() bool // reports whether no other payload can come. It is called only if it matters
}
