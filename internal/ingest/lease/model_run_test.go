package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/history"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/store"
)

// TestModelOfTheLease runs random histories. If MILLRACE_MODEL_HISTORY is set, it runs only that history, with a
// trace. A history doesn't fix the order in which goroutines run, so a failure may need several attempts to
// reproduce.
func TestModelOfTheLease(t *testing.T) {
	t.Parallel()
	lab := newModelLab(t)
	history.Run(t, history.Bounds{Min: modelMin, Max: modelMax, MustHappen: modelMustHappen}, func(h *history.History) map[string]int {
		m := runLeaseModel(t, h, lab)
		if history.Replays() {
			t.Log(strings.Join(m.trace, "\n"))
		}
		m.counts["step"] = m.steps
		return m.counts
	})
}

// TestModelOfTheLease makes at least modelMin runs, and at most modelMax until every required event has happened.
// The rarest events happen in one of a hundred runs.
const (
	modelMin = 100
	modelMax = 5000
)

// modelMustHappen lists the events that must have happened at least once in these runs.
var modelMustHappen = []string{
	"delivered", "redelivered", "delivery lost", "read", "stored", "stored again", "result lost", "confirmation lost", "acknowledged",
	"acknowledgement ignored", "acknowledgement lost", "request lost", "answer lost", "late request", "crashed", "frozen", "cut",
	"device lost", "terminated", "batch failed", "pin expired", "pin dropped", "unpinned", "redelivery asked for", "server restarted", "reset by an administrator", "repaired", "read failed silently", "known",
	"lease begun", errPinLost.Error(), pull.ErrSilent.Error(),
	"killed by an input", "dead letter", "replaced with a payload alone",
	"replaced with a record alone", "record letter", "record condemned", "spread over batches", "operator failed", "computed again", "broken frame",
	"committed", "commit refused", "batch cut", "batch proceeded", "message refused in a batch", "batch ended by another", "crashed during a batch", "frozen during a batch", "leader changed", "batch hit by a change of the leader", "read back", "settled by an earlier lease", store.ErrFenced.Error(),
	"part", "found by a lookup", "log entry read", "log trimmed", "near-duplicate", "generation", "state failed", "no room for a message for results", "no room for a message for dead letters",
	"no room for a commit to results", "no room for a commit to dead letters",
}

func runLeaseModel(t *testing.T, h *history.History, lab *modelLab) *leaseModel {
	t.Helper()
	m := newLeaseModel(h, lab)
	synctest.Test(t, func(*testing.T) { m.run() })
	if m.broken != "" {
		t.Errorf("%s\n%s", m.broken, strings.Join(m.trace[max(len(m.trace)-modelTrace, 0):], "\n"))
	}
	return m
}

// modelTrace is the number of trace lines in the report of a failure.
const modelTrace = 60

// The following functions run the second and the third part of a run.

// hunt gives the partition to one worker after another until all inputs are acknowledged. Only lethal records end
// workers.
func (m *leaseModel) hunt() {
	goal, begin := m.server.last(), m.deaths
	maximum := modelDeathsAlone + m.killers*modelDeathsEach
	for _, in := range m.messages {
		if slices.Contains(in.fails, true) {
			maximum++ // a lethal record may be compared with it
		}
	}
	m.hunting = true
	for m.broken == "" && m.server.floorSequence < goal {
		before := m.deaths
		m.until("the lethal records are found", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !slices.ContainsFunc(m.workers, func(w *leaseWorker) bool { return w.wants }) {
				m.give(m.workers[m.random.IntN(len(m.workers))])
			}
			return m.server.floorSequence >= goal || m.deaths > before
		})
		if m.deaths-begin > maximum {
			m.violate("%d workers died of %d lethal records, want at most %d", m.deaths-begin, m.killers, maximum)
		}
	}
	m.hunting = false
}

const (
	// modelDeathsAlone is the number of deaths until payloads run alone, including one that the first part may not
	// have recorded completely.
	modelDeathsAlone = 5

	// modelDeathsEach is the number of deaths until a lethal record is found. These are batches of 8, 4 and 2 rows,
	// and two of one row.
	modelDeathsEach = 5
)

// calmDown begins the third part.
func (m *leaseModel) calmDown() {
	m.notes.Lock()
	m.calm, m.calmAt = true, time.Now()
	m.notes.Unlock()
}

// handOvers runs the third part, in which the partition moves from worker to worker.
func (m *leaseModel) handOvers() {
	s := m.server
	for round := range 4 {
		slot := round % len(m.workers)
		goal := s.inputs[m.begin+(round+1)*modelInputs/4-1]
		m.mu.Lock()
		m.give(m.workers[slot])
		m.mu.Unlock()
		m.until(fmt.Sprintf("the floor comes to %d", goal), func() bool { return s.floorSequence >= goal })
		m.mu.Lock()
		m.take(m.workers[slot])
		m.mu.Unlock()
		m.until("the lease ends", func() bool { return m.active == 0 && len(m.workers[slot].start) == 0 })
	}
	if m.broken != "" {
		return
	}
	for _, in := range s.inputs {
		if s.results[in] == "" {
			m.violate("input %d has no result", in)
		}
	}
	if len(s.pending) > 0 || s.pin != "" {
		m.violate("in the end %d inputs are not acknowledged, and the pin is %q", len(s.pending), s.pin)
	}
}
