package faults

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
	"millrace/internal/operator/neardup"
)

// stateLogs are the subjects of the logs of states.
const stateLogs = "commits." + resultStream + "." + inputStream + ".millrace.*.state"

// stateLosses are the ways in which the state of a partition gets lost between two workers.
var stateLosses = []struct {
	name string
	lose func(r *rig) error
	says string // in the worker's error
}{
	{"other parameters", func(r *rig) error {
		r.operators("crc32c,neardup?bands=8&rows=2&k=6")
		return nil
	}, "the state belongs to neardup"},
	{"other generations", func(r *rig) error {
		r.set("MILLRACE_STATE_RECORDS=300")
		r.history.records = 300
		return nil
	}, "the state belongs to neardup"},
	{"a log that was purged", func(r *rig) error {
		return r.Stream(resultStream).Purge(r.Ctx(), jetstream.WithPurgeSubject(stateLogs))
	}, "entries were removed"},
	{"a log without its beginning", func(r *rig) error {
		return r.Stream(resultStream).Purge(r.Ctx(), jetstream.WithPurgeSubject(stateLogs), jetstream.WithPurgeKeep(1))
	}, "entries were removed"},
	{"markers that have expired", func(r *rig) error {
		markers := strings.TrimSuffix(stateLogs, ".state")
		return r.Stream(resultStream).Purge(r.Ctx(), jetstream.WithPurgeSubject(markers))
	}, "its commit markers have expired"},
	{"a log without its last entries", func(r *rig) error { return r.deleteLast(stateLogs) }, "entries were removed"},
}

// deleteLast deletes the last message of each subject of the result stream that matches a filter.
func (r *rig) deleteLast(filter string) error {
	s := r.Stream(resultStream)
	info, err := s.Info(r.Ctx(), jetstream.WithSubjectFilter(filter))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		last, err := s.GetLastMsgForSubject(r.Ctx(), subject)
		if err != nil {
			return err
		}
		if err := s.DeleteMsg(r.Ctx(), last.Sequence); err != nil {
			return err
		}
	}
	return nil
}

// TestStateIsLost checks that a worker exits with an error that says what to do if the state of its partition is lost. The
// worker processes nothing. With MILLRACE_STATE_LOST=begin, it begins with an empty state.
func TestStateIsLost(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range stateLosses {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2")
			input := r.nearDuplicates()
			r.serve(1)
			r.work(1)
			r.feed(1000, input).wait()
			r.settle(1)
			if err := c.lose(r); err != nil {
				t.Fatal(err)
			}
			before := r.Stream(inputStream).CachedInfo().State.LastSeq
			r.feed(1000, input).wait()
			r.wantLost(c.says)
			r.read(resultStream, func(_ uint64, m jetstream.Msg) {
				if r.number(m.Headers(), results.HeaderSequence) > before {
					t.Error("an input has a result, although the state is lost")
				}
			})
			r.set("MILLRACE_STATE_LOST=begin")
			r.work(1)
			r.settle(before + 1)
		})
	}
}

// wantLost checks that a new worker ends with an error that says why and what to do.
func (r *rig) wantLost(why string) {
	r.t.Helper()
	w := r.startWorker()
	w.expected.Store(true)
	r.until("the worker has ended", w.hasEnded)
	if code := w.cmd.ProcessState.ExitCode(); code == 0 || code == exitLost {
		r.t.Errorf("the worker ended with status %d", code)
	}
	if _, ok := w.said(why, "MILLRACE_STATE_LOST=begin"); !ok {
		r.t.Errorf("the worker doesn't say %q and what to do", why)
	}
}

// TestStateWithoutItsLastResults deletes the last messages of the result stream, so the state lacks inputs that are already acknowledged. The
// worker exits with an error. With MILLRACE_STATE_LOST=begin, it continues without these inputs.
func TestStateWithoutItsLastResults(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2")
	input := r.nearDuplicates()
	r.serve(1)
	r.work(1)
	r.feed(1000, input).wait()
	r.settle(1)
	s := r.Stream(resultStream)
	last := s.CachedInfo().State.LastSeq
	for at := last - 30; at <= last; at++ {
		if err := s.DeleteMsg(r.Ctx(), at); err != nil {
			t.Fatal(err)
		}
	}
	r.feed(1000, input).wait()
	r.wantLost("the result stream has lost its last messages")
	r.set("MILLRACE_STATE_LOST=begin")
	r.work(1)
	r.awaitFinished()
	r.retire()
}

// TestVerdictsWithPoison kills workers while some records fail in their operator. The state has each of the other records of their batches
// and frames once. It never has a failed record, so no later record is a near-duplicate of one.
func TestVerdictsWithPoison(t *testing.T) {
	need(t)
	t.Parallel()
	r := newRig(t, "exclusive")
	r.set("MILLRACE_EXACTLY_ONCE=required", "MILLRACE_PARTITIONS=2")
	plain := r.nearDuplicates()
	r.failWorkers()
	r.history.poison = func(_ neardup.Position, payload []byte) bool { return len(payload) == unfit }
	const every = 50
	r.serve(1)
	r.work(2)
	kills := times(20, 2)
	f := r.feed(endless, func(i int) *nats.Msg {
		m := plain(i)
		if i%every == every/2 {
			poison := append(bytes.Repeat([]byte("p"), unfit), '\n')
			m.Data = slices.Concat(m.Data, poison, []byte("between\n"), poison[1:]) // the last record doesn't fail, although it is similar to poison
		}
		return m
	})
	for range kills {
		r.awaitResults(1 + r.rng.IntN(2000))
		i := r.rng.IntN(2)
		r.workers[i].kill()
		r.workers[i] = r.startWorker()
	}
	f.finish()
	a := r.close("exactly once, R1 with state: an operator fails on some records, SIGKILL of a worker", kills)
	if want := (int(r.fed.Load()) + every/2) / every; a.dead != want {
		t.Errorf("%d dead letters, want %d", a.dead, want)
	}
	r.wantHistory()
}
