package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stateful gives the topology exclusive delivery with a stateful operator. The states fit into a worker and the streams.
func (r *rig) stateful() {
	r.exclusive(2)
	r.topology.Stateful = "neardup"
	r.use.States = States{Partition: 100 << 20, Memory: 1 << 30, Devices: 1, Log: 200 << 20}
}

func withState(r *rig) { r.stateful(); r.provision() }

var stateCases = []inspectCase{
	{"states as made", withState, empty, []string{"ok stream RESULTS: exactly once",
		"ok stream RESULTS: the log of the state of operator neardup may take 400 MiB: 200 MiB for each of 2 partitions",
		"ok states of operator neardup: the state of a partition takes 100 MiB, 200 MiB for all 2; a worker has 1024 MiB for states"}, "error"},
	{"a stream without states", exclusive, (*rig).stateful, []string{"error stream RESULTS: can delete the log of the state of operator " +
		"neardup: max_age 168h without allow_msg_ttl ... (nats stream edit RESULTS --allow-msg-ttl)"}, ""},
	{"no age", exclusive, func(r *rig) {
		r.stateful()
		r.edit("RESULTS", func(s *streamConfig) { s.MaxAge = 0 })
	}, nil, "can delete"},
	{"a log that goes", withState, func(r *rig) {
		r.edit("RESULTS", func(s *streamConfig) { s.Discard, s.MaxMsgsPerSubject = jetstream.DiscardOld, 1000 })
	}, []string{"error stream RESULTS: can delete the log of the state of operator neardup: max_bytes or max_msgs with discard old, " +
		"max_msgs_per_subject 1000 ... (nats stream edit RESULTS --discard new --max-msgs-per-subject=-1)"}, ""},
	{"states in a work queue", empty, func(r *rig) {
		r.stateful()
		r.add("RESULTS", "results.>,commits.RESULTS.>", streamConfig{Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true})
	}, []string{"error stream RESULTS: is a work queue, from which a worker can't read ... MILLRACE_RESULT_STREAM"}, ""},
	{"states with interest", empty, func(r *rig) {
		r.stateful()
		r.add("RESULTS", "results.>", streamConfig{Retention: jetstream.InterestPolicy})
	}, []string{"error stream RESULTS: within the duplicate window: with retention interest ... and the state of operator neardup needs " +
		"exactly once ... --retention limits"}, "MILLRACE_EXACTLY_ONCE=off"},
	{"states without commit markers", shared, (*rig).stateful, []string{"error stream RESULTS: within the duplicate window: the stream does " +
		"not take commit markers (subject commits.RESULTS.>), and the state of operator neardup needs exactly once ... --subjects 'commits.RESULTS.>' --force)",
		"error stream RESULTS: can delete ... --allow-msg-ttl)"}, ""},
	{"a log that stays", withState, func(r *rig) { r.edit("RESULTS", func(s *streamConfig) { s.DenyPurge = true }) },
		[]string{"warning stream RESULTS: denies purges (deny_purge), so the log of the state of operator neardup only grows"}, ""},
	{"a log that fills the stream", withState, func(r *rig) { r.use.States.Log = 3 << 30 },
		[]string{"warning stream RESULTS ... may take 6144 MiB: 3072 MiB for each of 2 partitions, and max_bytes is 4GiB: when the stream is full, " +
			"the worker waits ... (nats stream edit RESULTS --max-bytes 12GiB --discard new)",
			"warning stream RESULTS: while old messages expire (max_age 168h), the server reads all of the log ... up to 6144 MiB ... " +
				"(nats stream edit RESULTS --max-age 0s)"}, ""},
	{"states for two workers", withState, func(r *rig) { r.use.States.Partition = 600 << 20 },
		[]string{"warning states of operator neardup: the state of a partition takes 600 MiB, 1200 MiB for all 2; a worker has 1024 MiB for states, " +
			"which is enough for 1 partitions ... run at least 2 workers ... or raise MILLRACE_STATE_BYTES"}, ""},
	{"states on two devices", withState, func(r *rig) { r.use.States.Partition, r.use.States.Devices = 600<<20, 2 },
		[]string{"ok states of operator neardup ... a worker has 1024 MiB for states on each of 2 devices"}, ""},
	{"a state for no worker", withState, func(r *rig) { r.use.States.Partition = 1<<30 + 1 },
		[]string{"error states of operator neardup ... set MILLRACE_STATE_BYTES to at least 1025MiB, or lower MILLRACE_STATE_RECORDS"}, ""},
	{"states of unknown sizes", withState, func(r *rig) { r.use.States = States{} }, []string{"ok stream RESULTS: exactly once"}, "neardup"},
}

// TestAdviceKeepsTheLog shows that a log survives the limits of a stream after the advised commands, but not before.
func TestAdviceKeepsTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stateful()
	r.add("RESULTS", "results,results.>,commits.RESULTS.>", streamConfig{
		AllowBatchPublish: true, AllowAtomicPublish: true, MaxAge: time.Minute, MaxMsgs: 100, MaxMsgsPerSubject: 2,
	})
	r.provision()
	r.follow("change it (")
	for _, line := range r.found() {
		if strings.Contains(line, "can delete") {
			t.Error(line)
		}
	}
	subject := CommitSubject("commits", "RESULTS", "INGEST", "millrace", 0) + ".state"
	for range 5 {
		m := nats.NewMsg(subject)
		m.Header.Set("Nats-TTL", "never")
		if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
			t.Fatalf("the stream refuses a message that never expires: %v", err)
		}
	}
	stream, err := r.JS.Stream(r.Ctx(), "RESULTS")
	if err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(r.Ctx(), jetstream.WithSubjectFilter(subject))
	if err != nil || info.State.Subjects[subject] != 5 {
		t.Errorf("the stream has %d messages of the log, want 5 (error %v)", info.State.Subjects[subject], err)
	}
}

// TestPurgeOfTheLogNeedsAPermission shows the warning for a user with all permissions except for purging.
func TestPurgeOfTheLogNeedsAPermission(t *testing.T) {
	t.Parallel()
	denied := &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.PURGE.RESULTS"}}
	r := newRig(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "p", Permissions: &server.Permissions{Publish: denied}}}, "worker"
	})
	withState(r)
	wantLine(t, r.found(), "warning stream RESULTS: the worker can't remove old parts of the log of the state of operator neardup, which then only grows",
		"allow the worker's user to publish on $JS.API.STREAM.PURGE.RESULTS")
}
