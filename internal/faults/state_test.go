package faults

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
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

// TestStateIsLost: a worker whose partition's state is lost ends with an error that says what to do. It processes nothing. With
// MILLRACE_STATE_LOST=begin, an empty state begins.
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
			w := r.startWorker()
			w.expected.Store(true)
			r.until("the worker has ended", w.hasEnded)
			if code := w.cmd.ProcessState.ExitCode(); code == 0 || code == exitLost {
				t.Errorf("the worker ended with status %d", code)
			}
			if _, ok := w.said(c.says, "MILLRACE_STATE_LOST=begin"); !ok {
				t.Errorf("the worker doesn't say %q, nor what to do", c.says)
			}
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
