package ingest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/operator/neardup"
	"millrace/internal/streams"
)

// logSize is the size of the logs of all partitions' states.
type logSize struct{ entries, records, bytes int }

func (r *rig) logSize() (size logSize) {
	r.Helper()
	for _, m := range r.Stored("RESULTS") {
		if strings.HasSuffix(m.Subject, ".state") {
			size.entries, size.records, size.bytes = size.entries+1, size.records+natstest.Must(neardup.ReadHeader(m.Data))(r).Records, size.bytes+len(m.Data)
		}
	}
	return size
}

// awaitTrimmed waits until the logs have at most two generations of each partition, and the records of the commit in which the first of
// them begins.
func (r *rig) awaitTrimmed(batch int) (size logSize) {
	r.Helper()
	r.Until("the logs are trimmed", func() bool {
		size = r.logSize()
		return size.records <= r.opts.Partitions*(2*r.opts.State.Records+batch)
	})
	return size
}

// TestTheLogIsTrimmed runs workers for many generations, one after the other. The log has at most two of them, and each worker reads each
// entry of the log once and knows the size of the log.
func TestTheLogIsTrimmed(t *testing.T) {
	eachCommit(t, 1, func(t *testing.T, r *rig) {
		const n, generation, batch = 400, 100, 64
		stateRig(t, r, generation)
		var before logSize
		for round := range 3 {
			r.tally.replayed, r.tally.entries, r.tally.logged = 0, 0, 0
			r.publishFrom(round*n, (round+1)*n, nearDuplicates)
			run := r.run(hostDevice(t), streams.Options{BatchPayloads: batch})
			if !r.awaitEnd(run) {
				t.Fatalf("the worker ended with %v", run.wait())
			}
			size := r.awaitTrimmed(batch)
			r.Until("the worker knows the size of the logs", func() bool { return run.worker.States().LogBytes == int64(size.bytes) })
			run.finish()
			r.tally.mu.Lock()
			replayed, logged := logSize{r.tally.entries, before.records, r.tally.replayed}, r.tally.logged
			r.tally.mu.Unlock()
			t.Logf("%d bytes are logged; then the log has %+v", logged, size)
			if replayed != before {
				t.Errorf("the worker read %+v, and the log had %+v", replayed, before)
			}
			if logged < 5*size.bytes {
				t.Errorf("%d bytes are logged, so they have too few generations", logged)
			}
			before = size
		}
		r.wantVerdicts()
	})
}

// TestARefusedPurge runs a worker that may not purge the result stream. The worker says what to do, and goes on. Once it has the permission,
// the log is trimmed.
func TestARefusedPurge(t *testing.T) {
	t.Parallel()
	const subject = jetstream.DefaultAPIPrefix + "STREAM.PURGE.RESULTS"
	denied := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}
	r := rigOf(natstest.New(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "worker", Permissions: denied}}, "worker"
	}))
	r.opts.Exclusive, r.opts.Partitions = true, 2
	r.provision()
	const n, generation, batch = 400, 100, 64
	stateRig(t, r, generation)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: batch})
	r.publishFrom(0, n, nearDuplicates)
	r.awaitSettled()
	r.tally.awaitFunc(t, "failures to trim a log", 1, func() int { return r.tally.read(&r.tally.untrimmed) })
	if !r.Log.Has("the log of a partition's state grows: allow the worker to purge the result stream") {
		t.Error("the worker doesn't say what to do")
	}
	r.publishFrom(n, 2*n, nearDuplicates)
	r.awaitSettled()
	if size, records := r.logSize(), int(run.worker.States().Decided); size.records != records {
		t.Errorf("the log has %d of %d records, although nothing could be purged", size.records, records)
	}
	run.finish()
	r.Reload(func(o *server.Options) { o.Users = []*server.User{{Username: "worker", Password: "worker"}} })
	run = r.run(hostDevice(t), streams.Options{BatchPayloads: batch})
	r.publishFrom(2*n, 2*n+10, nearDuplicates)
	r.awaitSettled()
	r.awaitTrimmed(batch)
	run.finish()
	r.wantVerdicts()
}
