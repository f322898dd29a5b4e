package faults

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestProvisionedRetention kills workers and the server while the input stream removes acknowledged inputs, which is
// the default.
func TestProvisionedRetention(t *testing.T) {
	eachMode(t, func(r *rig) {
		r.removing()
		r.serve(1)
		r.work(2)
		f := r.feed(endless, r.inputs())
		for range times(10, 1) {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.replaceWorker()
			r.awaitResults(1 + r.rng.IntN(2000))
			r.servers[0].kill()
			r.servers[0].start(r.t)
			r.until("the server is back", r.jetStreamAnswers)
		}
		r.awaitResults(1)
		f.finish()
		r.wantEachSequenceOnce()
	})
}

// TestProvisionedRetentionInACluster kills workers and the server that leads a stream. The cluster has three servers,
// and new streams have three replicas.
func TestProvisionedRetentionInACluster(t *testing.T) {
	eachMode(t, func(r *rig) {
		r.removing()
		r.serve(replicas)
		r.work(2)
		r.until("all streams are replicated", r.isReplicated)
		f := r.feed(endless, r.inputs())
		for range times(10, 1) {
			r.awaitResults(1 + r.rng.IntN(2000))
			r.replaceWorker()
			stream := []string{inputStream, resultStream}[r.rng.IntN(2)]
			s := r.leader(stream)
			s.kill()
			r.until("another server leads "+stream, func() bool {
				now := r.whoLeads(stream)
				return now != "" && now != s.name
			})
			r.awaitResults(1)
			s.start(r.t)
			r.until("all replicas are current", r.isReplicated)
		}
		f.finish()
		r.until("all replicas are current", r.isReplicated)
		r.wantEachSequenceOnce()
	})
}

// removing makes workers create the input stream with its default retention.
func (r *rig) removing() {
	r.set("MILLRACE_STREAM_RETENTION=auto", "MILLRACE_STREAM_MAX_BYTES=4GiB", "MILLRACE_RESULT_MAX_BYTES=4GiB", "MILLRACE_DEADLETTER_MAX_BYTES=1GiB")
}

// replaceWorker kills a worker, and waits until another worker takes payloads.
func (r *rig) replaceWorker() {
	r.t.Helper()
	r.workers[0].kill()
	r.workers = r.workers[1:]
	r.work(1)
}

// wantEachSequenceOnce waits until every input is settled. It checks that each sequence of the input stream has one
// result, and that the workers have removed the inputs.
func (r *rig) wantEachSequenceOnce() {
	r.t.Helper()
	r.awaitFinished()
	var last uint64
	r.until("processed inputs are removed", func() bool {
		state, ok := r.state(inputStream)
		last = state.LastSeq
		return ok && state.Msgs == 0
	})
	r.retire()
	found := map[uint64]int{}
	for _, stream := range r.outputs() {
		r.read(stream, func(_ uint64, m jetstream.Msg) {
			sequence, err := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
			if err != nil || sequence == 0 || sequence > last {
				r.t.Errorf("a message on %s names input %q, but there are only %d", m.Subject(), m.Headers().Get(results.HeaderSequence), last)
			}
			found[sequence]++
		})
	}
	lost, doubled := 0, 0
	for sequence := uint64(1); sequence <= last; sequence++ {
		switch n := found[sequence]; {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
	}
	if last == 0 || lost+doubled > 0 {
		r.t.Errorf("of %d inputs %d have no result and %d have several", last, lost, doubled)
	}
	r.wantSecondOpinion()
	r.t.Logf("%d inputs, each with one result", last)
}
