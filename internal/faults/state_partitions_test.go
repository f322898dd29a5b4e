package faults

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestPartitionsChangeUnderAState starts workers with a number of partitions for which no states are stored. A state belongs to a partition, so
// a worker exits and says what to do. It exits before any partition without its state gets a result. With MILLRACE_STATE_LOST=begin, workers
// begin with empty states.
func TestPartitionsChangeUnderAState(t *testing.T) {
	need(t)
	t.Parallel()
	for _, c := range []struct{ before, after, subjects int }{{2, 4, 7}, {4, 2, 7}, {8, 1, 1}, {1, 8, 1}} {
		t.Run(fmt.Sprintf("%d to %d", c.before, c.after), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "exclusive")
			r.set("MILLRACE_EXACTLY_ONCE=required", fmt.Sprintf("MILLRACE_PARTITIONS=%d", c.before))
			plain := r.nearDuplicates()
			input := func(i int) *nats.Msg {
				m := plain(i)
				m.Subject = fmt.Sprintf("ingest.web.%d", i%c.subjects)
				return m
			}
			r.serve(1)
			r.work(1)
			r.feed(1000, input).wait()
			r.settle(1)
			r.set(fmt.Sprintf("MILLRACE_PARTITIONS=%d", c.after))

			w := r.startWorker()
			w.expected.Store(true)
			r.until("a worker that the input stream doesn't fit has ended", w.hasEnded)
			if _, ok := w.said(fmt.Sprintf("MILLRACE_PARTITIONS is %d", c.after), fmt.Sprintf("set MILLRACE_PARTITIONS=%d", c.before)); !ok {
				t.Error("the worker doesn't say which number of partitions the input stream has")
			}

			before := r.repartition(c.after)
			r.wantLost("the state belongs to neardup")
			r.feed(1000, input).wait()
			r.wantLost("the state belongs to neardup")
			r.read(resultStream, func(_ uint64, m jetstream.Msg) {
				if r.number(m.Headers(), results.HeaderSequence) > before {
					t.Error("an input has a result, although its state may be in another partition")
				}
			})
			r.set("MILLRACE_STATE_LOST=begin")
			r.work(1)
			r.settle(before + 1)
			r.set("MILLRACE_STATE_LOST=stop")
			r.work(1)
			r.feed(1000, func(i int) *nats.Msg { return input(1000 + i) }).wait()
			r.closeFrom(before+1, "with a state: another number of partitions", 1)
		})
	}
}

// repartition gives the input stream another number of partitions. It returns the stream's last sequence.
func (r *rig) repartition(partitions int) uint64 {
	r.t.Helper()
	c := r.StreamConfig(inputStream)
	c.SubjectTransform.Destination = fmt.Sprintf("{{partition(%d)}}.>", partitions)
	r.Create(c)
	return r.Stream(inputStream).CachedInfo().State.LastSeq
}
