package quarantine

import (
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
)

// MaxInRow is the number of different payloads that may fail alone on a device, one after another, while no other payload
// succeeds. The device may still compute payloads of known content correctly. A stream usually has one failing payload, or a few
// next to each other. After MaxInRow of them the device is to blame, and the worker stops. The number exceeds the last isolated
// batches of several payloads, and is small enough that a broken device costs only seconds.
const MaxInRow = 16

// evidence records which payloads failed alone on a device, and whether others have succeeded since. A payload is given up only
// with evidence that the payload, and not the device, is to blame.
type evidence struct {
	mu     sync.Mutex
	right  uint64                // number of batches that succeeded
	failed map[uint64]failedOnce // by sequence: payloads that failed alone, and have neither succeeded nor been given up since
	row    int                   // number of payloads that failed alone since a batch succeeded
}

// failedOnce is a payload that failed alone.
type failedOnce struct {
	stored time.Time // when the stream stored it, because a recreated stream reuses sequences
	right  uint64    // value of evidence.right when it last failed
	times  int       // how often the payload failed alone
	at     time.Time // when it last failed
}

// mostRemembered is the maximum number of failed payloads that are remembered for each device.
const mostRemembered = 1 << 16

// heldFor is how long a payload counts as held back after it failed: twice the longest delay of a redelivery.
const heldFor = 2 * inflight.MaxNakDelay

// cameRight records that a batch succeeded.
func (e *evidence) cameRight() {
	e.mu.Lock()
	e.right++
	e.row = 0
	e.mu.Unlock()
}

// batches returns the number of batches that have succeeded.
func (e *evidence) batches() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.right
}

// Ruling is the decision about payloads that fail alone.
type Ruling uint8

const (
	GiveUp        Ruling = iota // the payloads are to blame
	holdBack                    // undecided: the payloads are redelivered later
	DeviceNotWell               // the device is to blame, although it computes payloads of known content correctly
)

func (r Ruling) String() string { return [...]string{"give up", "hold back", "not well"}[r] }

// rule decides about payloads that each failed alone, between two probes that passed. limit is the number of deliveries of a
// payload after which its count decides.
//
// If another payload has succeeded since, the payloads are to blame. If two or more failed and none succeeded, the device is to
// blame. A single payload is to blame if there is no other to compare it with. Otherwise it is held back. It is given up when it
// fails again after others succeeded, or when it was delivered, or has failed, limit times.
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

// settled removes payloads that succeeded after all.
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

// holds reports whether a payload failed alone before and no other payload has succeeded since. Trying it in a batch with others
// would prove nothing.
func (e *evidence) holds(d *inflight.Delivery) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.failed[d.Sequence]
	return ok && f.stored.Equal(d.Stored) && f.right == e.right
}

// held returns the number of payloads that are held back.
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

// Comparison describes the other payloads that failing payloads are compared with.
type Comparison struct {
	Since  uint64      // value of Judge.Batches when the search for the failing payloads began
	Others int         // number of other payloads that were computed alone for comparison and failed too
	Idle   func() bool // reports whether no other payload can come; called only if needed
}
