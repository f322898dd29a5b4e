package faults

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
	"millrace/internal/operator"
)

const (
	// lookEvery is the interval between polls of a state.
	lookEvery = 20 * time.Millisecond

	// askTimeout limits one request to a server that may be down.
	askTimeout = 2 * time.Second
)

// rig holds servers, workers that use them, and helpers that check both.
type rig struct {
	*natstest.Rig // the test's client; nil before serve
	t             testing.TB
	dir           string // for files and logs
	seed          uint64
	rng           *rand.Rand // for the test's own random choices; goroutines use separate sources
	env           []string   // additional environment of workers
	binary        string     // of workers

	servers []*server

	workers []*worker       // workers that must be alive
	front   *natstest.Proxy // proxy of the first worker; nil for none
	starts  int             // number of workers started
	feeds   int
	lead    int          // lead of feeds; see the constant lead
	fed     atomic.Int64 // number of inputs that all feeds have stored
	max     atomic.Int64 // value of fed at which endless feeds wait
	batches []int        // MILLRACE_BATCH_PAYLOADS of workers, in turn; nil keeps the default

	ops   []operator.Operator
	split func(h nats.Header, body []byte) (records [][]byte, bad *damage) // splits an input into records; nil if each input is one payload
	began time.Time

	history *history // values of a stateful operator in an undisturbed run; nil without such an operator
}

// eachMode runs a test in every delivery mode. Tests run in parallel because they mostly wait for timeouts.
func eachMode(t *testing.T, test func(r *rig)) {
	need(t)
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(newRig(t, mode))
		})
	}
}

func newRig(t testing.TB, mode string) *rig {
	t.Helper()
	need(t)
	seed := uint64(1)
	if text := os.Getenv("MILLRACE_FAULTS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("MILLRACE_FAULTS_SEED=%q: set a whole number", text)
		}
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name())) // never fails
	r := &rig{
		t: t, dir: t.TempDir(), seed: seed, rng: rand.New(rand.NewPCG(seed, name.Sum64())),
		env: []string{"MILLRACE_DELIVERY=" + mode}, binary: workerBinary, lead: lead, began: time.Now(),
	}
	r.max.Store(endless)
	r.operators("crc32c")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to run it again: MILLRACE_FAULTS=%s MILLRACE_FAULTS_SEED=%d go test -run '^%s$' ./internal/faults", form, seed, t.Name())
		}
	})
	return r
}

func (r *rig) operators(list string) {
	r.t.Helper()
	ops, err := operator.ParseList(list)
	if err != nil {
		r.t.Fatal(err)
	}
	r.ops = ops
	r.set("MILLRACE_OPERATORS=" + list)
}

// set adds to the environment of workers that are started later.
func (r *rig) set(env ...string) { r.env = append(r.env, env...) }

// shortly returns a context for a request that may get no answer.
func (r *rig) shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), askTimeout)
}

// until returns once cond holds. It fails the test if a process exits unexpectedly first, or if cond doesn't hold
// within natstest.Patience.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	if !r.comes(cond) {
		c, ok := r.consumed()
		r.t.Fatalf("not within %v: %s; %d settled, consumers answer %v: %+v", natstest.Patience, what, r.settled(), ok, c)
	}
}

// comes reports whether cond holds within natstest.Patience.
func (r *rig) comes(cond func() bool) bool {
	r.t.Helper()
	return r.comesWithin(natstest.Patience, cond)
}

func (r *rig) comesWithin(limit time.Duration, cond func() bool) bool {
	r.t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	over := time.After(limit)
	for !cond() {
		r.wantAlive()
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
	return true
}

// wantAlive fails the test if a process has exited unexpectedly.
func (r *rig) wantAlive() {
	r.t.Helper()
	for _, w := range r.workers {
		if w.hasEnded() && !w.expected.Load() {
			r.t.Fatalf("%s ended by itself: %v", w.name, w.cmd.ProcessState)
		}
	}
	for _, s := range r.servers {
		if s.hasEnded() && !s.expected.Load() {
			r.t.Fatalf("server %s ended by itself: %v", s.name, s.cmd.ProcessState)
		}
	}
}
