package natstest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// modelFor is how long Seeds runs seeds, unless MILLRACE_MODEL_FOR sets another duration.
const modelFor = 3 * time.Second

// Seeds runs a model with one new seed after another for some seconds, and longer on a busy machine: until there were least runs, and every
// event of mustHappen has happened. Without such an event the model proves nothing about it. The test fails if an event is missing after so
// many runs that it must have happened (most), however long they take. A run returns how often each event happened, and fails t if an
// invariant is broken.
//
// With -short, as under the race detector, there are a tenth of the runs, for a second, and no event must happen.
// With MILLRACE_MODEL_SEED there is one run, with that seed.
func Seeds(t *testing.T, least, most int, mustHappen []string, run func(seed uint64) map[string]int) {
	t.Helper()
	if text := os.Getenv("MILLRACE_MODEL_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(run(seed))
		return
	}
	budget, first := modelFor, uint64(time.Now().UnixNano())
	if testing.Short() {
		budget, least, mustHappen = time.Second, 1+least/10, nil
	}
	if text := os.Getenv("MILLRACE_MODEL_FOR"); text != "" {
		var err error
		if budget, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	counts, runs := map[string]int{}, 0
	missing := func() (events []string) {
		for _, what := range mustHappen {
			if counts[what] == 0 {
				events = append(events, what)
			}
		}
		return events
	}
	for began := time.Now(); !t.Failed() && (runs < least || time.Since(began) < budget || runs < most && missing() != nil); runs++ {
		seed := first + uint64(runs)
		for what, n := range run(seed) {
			counts[what] += n
		}
		if t.Failed() {
			t.Logf("MILLRACE_MODEL_SEED=%d", seed)
		}
	}
	t.Logf("%d runs: %v", runs, counts)
	if events := missing(); events != nil && !t.Failed() {
		t.Errorf("in none of %d runs: %q", runs, events)
	}
}
