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

// TestModelOfTheLease runs random histories of each policy. If MILLRACE_MODEL_HISTORY is set, it runs only that history,
// with a trace. A history doesn't fix the order in which goroutines run, so a failure may need several attempts to
// reproduce.
func TestModelOfTheLease(t *testing.T) {
	t.Parallel()
	for _, p := range modelPolicies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			lab := newModelLab(t)
			bounds := history.Bounds{Min: modelMin, Max: modelMax, MustHappen: slices.Concat(modelMustHappen, p.mustHappen)}
			history.Run(t, bounds, func(h *history.History) map[string]int { return runLeaseModel(t, newLeaseModel(h, lab, p)) })
		})
	}
}

// A policy makes at least modelMin runs, and at most modelMax until every required event has happened. The rarest events
// happen in one of a hundred runs.
const (
	modelMin = 100
	modelMax = 5000
)

// modelPolicy is a way of delivering inputs and of storing results.
type modelPolicy struct {
	name       string
	shared     bool     // whether the workers use shared delivery
	once       bool     // whether the streams accept commit markers; otherwise they drop duplicates within their windows
	mustHappen []string // events that must happen in addition to modelMustHappen
}

var modelPolicies = []modelPolicy{
	{name: "shared", shared: true, mustHappen: slices.Concat(modelUnmarked, []string{"fetched", "given back", "terminated input", "alone"})},
	{name: "window", mustHappen: slices.Concat(modelUnmarked, modelExclusive)},
	{name: "markers", once: true, mustHappen: slices.Concat(modelExclusive, []string{
		"committed", "commit refused", "batch cut", "batch proceeded", "message refused in a batch", "batch ended by another", "crashed during a batch",
		"frozen during a batch", "read back", "settled by an earlier lease", store.ErrFenced.Error(), "log entry read", "log trimmed", "near-duplicate",
		"generation", "state failed", "no room for a commit to results", "no room for a commit to dead letters",
	})},
}

// These events must happen at least once: modelMustHappen with each policy, modelUnmarked without commit markers, and
// modelExclusive with exclusive delivery.
var (
	modelMustHappen = []string{
		"delivered", "redelivered", "delivery lost", "stored", "acknowledged", "acknowledgement ignored", "acknowledgement lost", "request lost", "answer lost",
		"late request", "crashed", "frozen", "zombie", "cut", "device lost", "terminated", "batch failed", "server restarted", "leader changed",
		"request hit by a change of the leader", "killed by an input", "dead letter", "record letter", "record condemned", "spread over batches",
		"operator failed", "computed again", "broken frame", "too large", "part",
	}
	modelUnmarked = []string{
		"result lost", "confirmation lost", "stored again", "found by a lookup", "no room for a message for results", "no room for a message for dead letters",
	}
	modelExclusive = []string{
		"read", "pin expired", "pin dropped", "unpinned", "redelivery asked for", "reset by an administrator", "repaired", "read failed silently", "known",
		"lease begun", errPinLost.Error(), pull.ErrSilent.Error(), "replaced with a payload alone", "replaced with a record alone",
	}
)

func runLeaseModel(t *testing.T, m *leaseModel) (happened map[string]int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { m.run() })
	switch {
	case m.broken != "":
		t.Errorf("BROKEN: %s\n%s", m.broken, strings.Join(m.trace[max(len(m.trace)-modelTrace, 0):], "\n"))
	case history.Replays():
		t.Log(strings.Join(m.trace, "\n"))
	}
	m.counts[history.Step] = m.steps
	return m.counts
}

// modelTrace is the number of trace lines in the report of a failure.
const modelTrace = 60

// The following functions run the second and the third part of a run.

// hunt gives the partition to one worker after another until all inputs are settled. Only lethal records end workers.
func (m *leaseModel) hunt() {
	goal, begin, maximum := m.server.last(), m.deaths, modelDeathsAlone+m.killers*modelDeathsEach
	if m.shared {
		maximum = sharedDeaths + m.killers*sharedDeaths
	}
	for _, in := range m.messages {
		if !m.shared && slices.Contains(in.fails, true) {
			maximum++ // a lethal record may be compared with it
		}
	}
	over := func() bool {
		if m.shared {
			return m.server.isSettled()
		}
		return m.server.floorSequence >= goal
	}
	m.hunting = true
	for m.broken == "" && !over() {
		before := m.deaths
		m.until("the lethal records are found", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !slices.ContainsFunc(m.workers, func(w *leaseWorker) bool { return w.wants }) {
				m.give(m.workers[m.random.IntN(len(m.workers))])
			}
			return over() || m.deaths > before
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

	// sharedDeaths is both numbers with shared delivery.
	sharedDeaths = 6
)

// calmDown begins the third part.
func (m *leaseModel) calmDown() {
	m.notes.Lock()
	m.calm, m.calmAt = true, time.Now()
	m.notes.Unlock()
}

// resetTo resets the consumer under its owner, like an administrator. The inputs from sequence on are delivered again.
func (m *leaseModel) resetTo(sequence uint64) {
	m.mu.Lock()
	m.server.reset(sequence)
	m.mu.Unlock()
	m.notes.Lock()
	m.readministered = true
	clear(m.clean)
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
		reached := func() bool { return s.floorSequence >= goal }
		m.until(fmt.Sprintf("the floor comes to %d", goal), reached)
		if m.random.IntN(12) == 0 {
			m.resetTo(goal)
			m.until(fmt.Sprintf("the floor comes to %d again", goal), reached)
		}
		m.mu.Lock()
		m.take(m.workers[slot])
		m.mu.Unlock()
		m.until("the lease ends", func() bool { return m.isIdle() && len(m.workers[slot].start) == 0 })
	}
	if m.broken != "" {
		return
	}
	for _, in := range s.inputs {
		if s.results[in] == "" {
			m.violate("input %d has no result", in)
		}
	}
	if len(s.pending) > 0 || s.pin != "" && !m.readministered {
		m.violate("in the end %d inputs are not acknowledged, and the pin is %q", len(s.pending), s.pin)
	}
}
