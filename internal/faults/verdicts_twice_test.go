package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestVerdictsOfInputsSentTwice publishes every input twice with the same id. The stream stores one copy, so the state never gets the other.
// After the stream's duplicate window, the test publishes the inputs again. The stream stores them as new inputs, and each record is a
// near-duplicate, even if workers are killed.
func TestVerdictsOfInputsSentTwice(t *testing.T) {
	need(t)
	t.Parallel()
	for _, setup := range []onceSetup{oneState, threeStates} {
		t.Run(setup.String(), func(t *testing.T) {
			t.Parallel()
			const generation = 1_000_000 // no record is forgotten
			n, kills := times(100_000, 2_000), times(10, 2)
			r := newRig(t, "exclusive")
			r.set("MILLRACE_EXACTLY_ONCE=required")
			input := r.nearDuplicates()
			r.set(fmt.Sprintf("MILLRACE_STATE_RECORDS=%d", generation))
			r.history.records, r.lead = generation, n
			r.serve(setup.servers)
			r.work(2)
			feeds := []*feed{r.feed(n, input), r.feedAgain(n, input)}
			r.killAll(kills, n/(2*kills))
			for _, f := range feeds {
				f.wait()
			}
			if state, ok := r.state(inputStream); !ok || state.LastSeq != uint64(n) {
				t.Fatalf("the stream has stored %d inputs, want each of %d once", state.LastSeq, n)
			}
			c := r.StreamConfig(inputStream)
			c.Duplicates = onceWindow
			r.Create(c)
			r.pass(time.Now(), 10*onceWindow)
			again := r.feedAgain(n, input)
			r.killAll(kills, n/(2*kills))
			again.wait()
			a := r.close(fmt.Sprintf("exactly once, %v: inputs are sent again within and beyond their duplicate window, SIGKILL of both workers", setup), 2*kills)
			if h := r.history; a.messages != 2*n || h.hits < h.decided/2 || a.dead > 0 {
				t.Errorf("%d inputs, %d dead letters, and %d of %d records are near-duplicates, want %d inputs and at least half of the records", a.messages, a.dead, h.hits, h.decided, 2*n)
			}
			t.Logf("%d records, %d of them near-duplicates", r.history.decided, r.history.hits)
		})
	}
}

// feedAgain starts to publish n inputs with the ids of the last feed.
func (r *rig) feedAgain(n int, input func(i int) *nats.Msg) *feed {
	r.t.Helper()
	r.feeds--
	return r.feed(n, input)
}

// killAll kills and replaces all workers the given number of times, each time after the given number of results.
func (r *rig) killAll(kills, results int) {
	r.t.Helper()
	for range kills {
		r.awaitResults(results)
		for i, w := range r.workers {
			w.kill()
			r.workers[i] = r.startWorker()
		}
	}
}
