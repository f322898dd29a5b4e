package lease

import (
	"strings"
	"testing"
	"testing/synctest"

	"millrace/internal/history"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/pull"
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
	"replaced with a record alone", "record letter", "record condemned", "spread over batches", "operator failed", "broken frame",
	"committed", "commit refused", "batch cut", "batch proceeded", "message refused in a batch", "batch ended by another", "crashed during a batch", "frozen during a batch", "leader changed", "batch hit by a change of the leader", "read back", "settled by an earlier lease", commit.ErrFenced.Error(),
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
