package quarantine

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Judge decides about payloads that fail alone, and keeps the evidence for each device. Both delivery modes use it.
type Judge struct {
	evidence map[*streams.Pipeline]*evidence
	progress *inflight.Progress // progress of the worker; computed batches are progress
	log      *slog.Logger
}

// NewJudge returns a Judge without evidence.
func NewJudge(pipes []*streams.Pipeline, progress *inflight.Progress, log *slog.Logger) *Judge {
	j := &Judge{evidence: map[*streams.Pipeline]*evidence{}, progress: progress, log: log}
	for _, p := range pipes {
		j.evidence[p] = &evidence{}
	}
	return j
}

// CameRight records that a device has computed a batch.
func (j *Judge) CameRight(pipe *streams.Pipeline, b *inflight.Batch) {
	j.progress.Mark()
	j.evidence[pipe].cameRight()
	for _, e := range j.evidence {
		e.settled(b.Items)
	}
}

// Batches returns the number of batches that have succeeded on a device.
func (j *Judge) Batches(pipe *streams.Pipeline) uint64 { return j.evidence[pipe].batches() }

// HeldBack returns the number of payloads that are held back. These payloads failed alone, and the server redelivers them later.
func (j *Judge) HeldBack() (n int) {
	for _, e := range j.evidence {
		n += e.held()
	}
	return n
}

// Holds reports whether a payload is held back.
func (j *Judge) Holds(d *inflight.Delivery) bool {
	for _, e := range j.evidence {
		if e.holds(d) {
			return true
		}
	}
	return false
}

// Decide decides about payloads of b that fail alone; see evidence.rule. err is the reason to end the pipeline if it returns
// DeviceNotWell.
func (j *Judge) Decide(pipe *streams.Pipeline, b *inflight.Batch, failing []Failing, limit int, c Comparison) (ruled Ruling, err error) {
	failed := Sources(b, failing)
	ruled = j.evidence[pipe].rule(failed, limit, c)
	d, cause := failed[0], failing[0].Err
	switch ruled {
	case DeviceNotWell:
		n := max(len(failed), 1+c.Others, j.evidence[pipe].inRow())
		j.log.Error("payload after payload fails alone and none comes right: the worker stops, and gives back all of them without blame "+
			"(see the runbook MillraceHeldBack)", "device", pipe.Device().ID, "payloads", n, "first_sequence", d.Sequence, "error", cause)
		return ruled, fmt.Errorf("the operators fail on each of %d payloads alone, and no other payload succeeded in between: %w", n, cause)
	case holdBack:
		j.log.Warn("an operator fails on a payload alone, and no other payload has come right since: it is held back and tried again later",
			"stream", d.Stream, "sequence", d.Sequence, "deliveries", d.NumDelivered, "error", cause)
	}
	return ruled, nil
}

// Failing is a payload or a record on which the operators failed when it ran alone.
type Failing struct {
	Row int // index in the batch
	Err error
}

// Sources returns the deliveries of failing rows of a batch, each once. Several failing records of one frame are as much evidence
// against a device as one failing payload.
func Sources(b *inflight.Batch, failing []Failing) (sources []*inflight.Delivery) {
	for _, a := range failing {
		d := b.Source(a.Row)
		if last := len(sources) - 1; last < 0 || sources[last] != d { // the rows of a frame are next to each other
			sources = append(sources, d)
		}
	}
	return sources
}

// MaxInRow is the number of payloads that must fail alone on a device, with no success in between, before the worker stops. The
// worker then considers the device the cause, even if the device passes its probes. A stream usually has one failing payload, or
// a few next to each other. The number exceeds the size of the last isolated batches with several payloads, and is small enough
// that a broken device costs only seconds.
const MaxInRow = 16

// evidence records the payloads that failed alone on a device, and the number of batches that succeeded. A payload is given up
// only with evidence that the payload, and not the device, is the cause.
type evidence struct {
	mu    sync.Mutex
	right uint64 // number of batches that succeeded
	// failed contains the payloads that failed alone. A payload that succeeds or is given up is removed.
	failed map[place]failedOnce
	row    int // number of payloads that failed alone since the last successful batch
}

// place is the position of a payload in its stream.
type place struct {
	stream   string
	sequence uint64
}

func placeOf(d *inflight.Delivery) place { return place{d.Stream, d.Sequence} }

// failedOnce is a payload that failed alone.
type failedOnce struct {
	stored time.Time // time when the stream stored the payload; a recreated stream reuses sequences
	right  uint64    // value of evidence.right at the first failure
	times  int       // number of failures alone
	at     time.Time // time of the last failure
}

// maxRemembered is the maximum number of failed payloads that are remembered for each device.
const maxRemembered = 1 << 16

// heldFor is the time for which a failed payload is counted as held back. It is twice the longest delay of a redelivery.
const heldFor = 2 * inflight.MaxNakDelay

func (e *evidence) cameRight() {
	e.mu.Lock()
	e.right++
	e.row = 0
	e.mu.Unlock()
}

func (e *evidence) batches() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.right
}

// Ruling is the decision about payloads that fail alone.
type Ruling uint8

const (
	GiveUp        Ruling = iota // the payloads are the cause
	holdBack                    // undecided; the payloads are redelivered later
	DeviceNotWell               // the device is the cause, although it passes probes
)

// rule decides about payloads that each failed alone between two successful probes. limit is the number of deliveries or failures
// after which a payload that has failed before is given up.
//
// If another payload has succeeded since c.Since, the payloads are given up. If several payloads failed and none succeeded, the
// device is the cause. A single payload is given up if there is no other payload for a comparison. Otherwise it is held back. It
// is given up when it fails again after another payload has succeeded, or when it was delivered, or has failed, limit times.
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

// note records a payload that failed alone, and returns the record of its earlier failures. again is false if there is none.
func (e *evidence) note(d *inflight.Delivery) (before failedOnce, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, again = e.failed[placeOf(d)]
	if again && before.stored.Equal(d.Stored) {
		e.failed[placeOf(d)] = failedOnce{d.Stored, before.right, before.times + 1, time.Now()}
		return before, true
	}
	if e.failed == nil || len(e.failed) >= maxRemembered {
		e.failed = map[place]failedOnce{} // bounds the map; a forgotten payload is held back once more
	}
	e.failed[placeOf(d)] = failedOnce{d.Stored, e.right, 1, time.Now()}
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
		delete(e.failed, placeOf(d))
	}
	return GiveUp
}

// settled removes payloads that have succeeded.
func (e *evidence) settled(items []inflight.Delivery) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.failed) == 0 {
		return
	}
	for i := range items {
		delete(e.failed, placeOf(&items[i]))
	}
}

// holds reports whether a payload failed alone and no other payload has succeeded since. Running it with other payloads would
// prove nothing.
func (e *evidence) holds(d *inflight.Delivery) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.failed[placeOf(d)]
	return ok && f.stored.Equal(d.Stored) && f.right == e.right
}

// held returns the number of payloads that are counted as held back.
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
	Since  uint64      // value of Judge.Batches at the start of the search for the failing payloads
	Others int         // number of other payloads that failed too when they were computed alone for the comparison
	Idle   func() bool // reports whether no other payload can arrive; called only if needed
}

// Levels determines the size of isolated batches. With shared delivery, an unacknowledged payload of an earlier delivery may have broken
// the device, or was only in flight at the same time. Its level is the number of such deliveries, and 0 for a new payload. With exclusive
// delivery, the level is the number of owners that died. Batches get smaller with the level, until the failing payload is alone. The level
// is stored by the server, because a process that dies loses its memory.
type Levels struct {
	Full  int // number of payloads in a full batch; at least 1
	Limit int // number of deliveries before a payload is given up; at least 1
}

const (
	// shrink is the factor by which batches shrink with each level. With a larger factor, fewer restarts find a payload, but the
	// other payloads need more batches. 8192 payloads are tried in batches of 512, 32, 2 and 1.
	shrink = 16

	// LoneRuns is the number of times that a payload runs alone before it is given up, because one failure may be chance.
	LoneRuns = 2
)

// Size returns the maximum number of payloads of a level per batch. Before the limit, it is 1 for the last LoneRuns levels.
func (l Levels) Size(level int) int {
	if level > 0 && level >= l.Limit-LoneRuns {
		return 1
	}
	size := l.Full
	for ; level > 0 && size > 1; level-- {
		size /= shrink
	}
	return max(size, 1)
}

// AloneLevel returns the first level at which a payload is tried alone.
func (l Levels) AloneLevel() int {
	level := 1
	for l.Size(level) > 1 {
		level++
	}
	return level
}

// isGuilty reports whether a payload of the given level may have broken the device twice while it ran alone. It is used only if the
// consumer has no attemptNote.
func (l Levels) isGuilty(level int) bool { return level >= l.AloneLevel()+LoneRuns-1 }
