package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// In these tests the duplicate windows are as short as a server allows, and nearly all results have no ids that a server
// compares. So only commit markers prevent second results. Each test runs with one server, where results are stored in
// fast batches, and with three replicas, where they are stored in atomic batches. Some tests also run with result ids,
// because fast batches of results with ids begin in another way. Each test also runs with a stateful operator, whose
// results must equal those of an undisturbed run.

const (
	// onceWindow is the shortest duplicate window.
	onceWindow = 100 * time.Millisecond

	// onceAway is longer than the duplicate window, and longer than the time for which a silent worker keeps its
	// partition.
	onceAway = 5 * time.Second
)

// onceSetup is a setup in which a fault is injected.
type onceSetup struct {
	servers int
	ids     bool // results have ids
	state   bool // results depend on earlier records; see nearDuplicates
}

func (o onceSetup) String() string {
	switch {
	case o.ids:
		return fmt.Sprintf("R%d with ids", o.servers)
	case o.state:
		return fmt.Sprintf("R%d with state", o.servers)
	}
	return fmt.Sprintf("R%d", o.servers)
}

var (
	oneServer     = onceSetup{servers: 1}
	withIDs       = onceSetup{servers: 1, ids: true}
	threeReplicas = onceSetup{servers: replicas}
	oneState      = onceSetup{servers: 1, state: true}
	threeStates   = onceSetup{servers: replicas, state: true}
)

// eachOnce injects a fault several times in each setup.
func eachOnce(t *testing.T, name string, full int, setups []onceSetup, prepare func(r *rig), inject func(r *rig, round int)) {
	need(t)
	t.Parallel()
	for _, setup := range setups {
		if setup.ids && !isFull() {
			continue // setups with ids take a minute, and package ingest tests ids too
		}
		t.Run(setup.String(), func(t *testing.T) {
			n := setup.servers
			t.Parallel()
			r := newRig(t, "exclusive")
			r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_RESULT_IDS="+strconv.FormatBool(setup.ids), "MILLRACE_PARTITIONS=4", "MILLRACE_LOG_LEVEL=debug")
			input := r.inputs()
			if setup.state {
				input = r.nearDuplicates()
			}
			r.serve(n)
			prepare(r)
			for _, name := range []string{resultStream, deadStream} {
				c := r.StreamConfig(name)
				if c.Replicas != n {
					t.Fatalf("stream %s has %d replicas, want %d", name, c.Replicas, n)
				}
				c.Duplicates = onceWindow
				r.Create(c)
			}
			if n > 1 {
				r.until("all streams are replicated", r.isReplicated)
			}
			f := r.feed(endless, input)
			rounds := times(full, 1)
			for round := range rounds {
				r.awaitResults(1 + r.rng.IntN(2000))
				inject(r, round)
				r.awaitResults(1)
			}
			f.finish()
			if n > 1 {
				r.until("all replicas are current", r.isReplicated)
			}
			r.closeLate(fmt.Sprintf("exactly once, %v: %s", setup, name), rounds)
			if setup.state {
				r.wantHistory()
			}
			r.wantOrder(setup.ids)
			r.wantSecondOpinion()
		})
	}
}

func twoWorkers(r *rig) { r.work(2) }

// wantOrder checks that the results on each subject are stored in the order of their inputs. Results must have ids if
// ids is true, and no ids otherwise. Markers must be stored.
func (r *rig) wantOrder(ids bool) {
	r.t.Helper()
	last, disordered := map[string]uint64{}, 0
	r.read(resultStream, func(_ uint64, m jetstream.Msg) {
		if id := m.Headers().Get(jetstream.MsgIDHeader); (id != "") != ids {
			r.t.Fatalf("a result has the message id %q; want ids: %v", id, ids)
		}
		sequence, _ := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
		if sequence <= last[m.Subject()] {
			disordered++
		}
		last[m.Subject()] = sequence
	})
	if disordered > 0 || len(last) == 0 {
		r.t.Errorf("%d results are out of order; subjects: %v", disordered, slices.Sorted(maps.Keys(last)))
	}
	ctx := r.Ctx()
	s, err := r.JS.Stream(ctx, resultStream)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter("commits.>"))
	if err != nil {
		r.t.Fatal(err)
	}
	if len(info.State.Subjects) == 0 {
		r.t.Error("the stream has no commit marker, so the test shows nothing")
	}
}

func isMarker(m interface{ Subject() string }) bool {
	return strings.HasPrefix(m.Subject(), "commits.")
}

var (
	bothSizes = []onceSetup{oneServer, threeReplicas, oneState, threeStates}
	andIDs    = []onceSetup{oneServer, threeReplicas, withIDs, oneState, threeStates}
)

func TestExactlyOnceWorkerKilled(t *testing.T) {
	eachOnce(t, "SIGKILL of a worker", 50, andIDs, twoWorkers, func(r *rig, _ int) {
		i := r.rng.IntN(2)
		r.workers[i].kill()
		r.workers[i] = r.startWorker()
	})
}

// TestVerdictsAfterManyKills kills workers at more moments than TestExactlyOnceWorkerKilled.
func TestVerdictsAfterManyKills(t *testing.T) {
	eachOnce(t, "SIGKILL of a worker or of both", 100, []onceSetup{oneState, threeStates}, twoWorkers, func(r *rig, _ int) {
		if r.rng.IntN(4) == 0 {
			r.workers[0].kill()
			r.workers[1].kill()
			r.workers = []*worker{r.startWorker(), r.startWorker()}
			return
		}
		i := r.rng.IntN(2)
		r.workers[i].kill()
		r.workers[i] = r.startWorker()
	})
}

func TestExactlyOnceWorkerFrozen(t *testing.T) {
	eachOnce(t, "SIGSTOP beyond the window, and SIGCONT", 50, andIDs, twoWorkers, func(r *rig, _ int) {
		r.awaitWork(r.workers[0])
		r.workers[0].send(syscall.SIGSTOP)
		r.pass(time.Now(), onceAway)
		r.workers[0].send(syscall.SIGCONT)
		r.until("the worker is back", r.workers[0].isReady)
	})
}

// behindProxy starts two workers, the first behind a proxy.
func behindProxy(r *rig) {
	r.front = r.proxy()
	r.join(r.startWorkerAt(r.front.URL()))
	r.work(1)
}

func TestExactlyOnceConnectionCut(t *testing.T) {
	eachOnce(t, "connection cut beyond the window", 50, bothSizes, behindProxy, func(r *rig, _ int) {
		r.awaitWork(r.workers[0])
		r.front.Refuse(true)
		r.pass(time.Now(), onceAway)
		r.front.Refuse(false)
		r.until("the worker is back", r.workers[0].isReady)
	})
}

// TestExactlyOnceOneWayCut delays the messages in one direction. Afterwards it delivers them late or drops them.
func TestExactlyOnceOneWayCut(t *testing.T) {
	eachOnce(t, "connection cut one way beyond the window", 50, andIDs, behindProxy, func(r *rig, round int) {
		r.awaitWork(r.workers[0])
		way := &r.front.Up
		if round%2 == 1 {
			way = &r.front.Down
		}
		way.Close()
		r.pass(time.Now(), onceAway)
		if r.rng.IntN(2) == 0 {
			r.front.Cut()
		}
		way.Open()
		r.until("the worker is back", r.workers[0].isReady)
	})
}

func TestExactlyOnceAfterADowntime(t *testing.T) {
	eachOnce(t, "all workers killed, others started beyond the window", 50, bothSizes, twoWorkers, func(r *rig, _ int) {
		for _, w := range r.workers {
			w.kill()
		}
		r.workers = nil
		r.pass(time.Now(), 10*onceWindow)
		r.work(2)
	})
}

func TestExactlyOnceServerRestarted(t *testing.T) {
	eachOnce(t, "restart of the server", 50, []onceSetup{oneServer, withIDs, oneState}, twoWorkers, func(r *rig, round int) {
		s := r.servers[0]
		if round%2 == 0 {
			s.kill()
		} else {
			s.terminate()
		}
		s.start(r.t)
		r.until("the server is back", r.jetStreamAnswers)
	})
}

func TestExactlyOnceLeaderKilled(t *testing.T) {
	eachOnce(t, "SIGKILL of a stream's leader", 50, []onceSetup{threeReplicas, threeStates}, twoWorkers, func(r *rig, round int) {
		stream := []string{resultStream, inputStream}[round%2]
		s := r.leader(stream)
		s.kill()
		r.until("another server leads "+stream, func() bool {
			now := r.whoLeads(stream)
			return now != "" && now != s.name
		})
		r.awaitResults(1)
		s.start(r.t)
		r.until("all replicas are current", r.isReplicated)
	})
}
