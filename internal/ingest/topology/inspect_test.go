package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/trim"
)

// inspectCase has a state of the server, and findings about it.
type inspectCase struct {
	name   string
	start  func(*rig) // empty, shared or exclusive
	change func(*rig)
	want   []string // each has parts of one finding, separated by " ... "
	not    string   // part of a finding that must not occur
}

func empty(*rig)       {}
func shared(r *rig)    { r.provision() }
func exclusive(r *rig) { r.exclusive(2); r.provision() }

var streamCases = []inspectCase{
	{"nothing", empty, empty, []string{"error (missing) stream INGEST ... MILLRACE_PROVISION=true", "error (missing) stream RESULTS",
		"error (missing) dead letters deadletter.>: no stream stores them ... MILLRACE_PROVISION=true"}, ""},
	{"no consumer", empty, func(r *rig) { r.add("INGEST", "ingest.>", streamConfig{}) },
		[]string{"error (missing) consumer millrace ... MILLRACE_PROVISION=true"}, "ok consumer"},
	{"result subjects nowhere", empty, func(r *rig) { r.add("RESULTS", "other.>", streamConfig{}) },
		[]string{`error stream RESULTS ... does not store ["results.>"] (no stream does) ... add the subjects`}, ""},
	{"result subjects elsewhere", empty, func(r *rig) {
		r.add("RESULTS", "other.>", streamConfig{})
		r.add("MINE", "results.>", streamConfig{})
	}, []string{"error stream RESULTS ... (stream MINE does) ... MILLRACE_RESULT_STREAM"}, ""},
	{"result subjects in part", empty, func(r *rig) { r.add("RESULTS", "results.web.>", streamConfig{}) },
		[]string{"error stream RESULTS ... does not store all of ... MILLRACE_RESULT_PREFIX"}, ""},
	{"dead letters in part", empty, func(r *rig) { r.add("RESULTS", "results.>,deadletter.a", streamConfig{}) },
		[]string{"error dead letters ... does not store all of ... MILLRACE_DEADLETTER_PREFIX"}, ""},
	{"input subjects elsewhere", empty, func(r *rig) { r.add("INGEST", "other.>", streamConfig{}) },
		[]string{`warning stream INGEST ... stores nothing under "ingest.>" ... MILLRACE_SUBJECTS`}, ""},
	{"input subjects in part", empty, func(r *rig) {
		r.topology.Subjects = []string{"ingest.web.*"}
		r.add("INGEST", "ingest.*.en", streamConfig{})
	}, nil, "stores nothing"},
	{"memory", empty, func(r *rig) {
		r.topology.Storage = jetstream.MemoryStorage
		r.provision()
	}, []string{"warning stream RESULTS ... Memory ... use file storage", "warning stream INGEST ... use file storage"}, ""},
	{"dead letters without acknowledgements", shared, func(r *rig) {
		r.edit("RESULTS_DEADLETTER", func(s *streamConfig) { s.NoAck = true })
	}, []string{"error dead letters deadletter.>: has no_ack set, so the server never confirms that a dead letter is stored"}, ""},
	{"sealed results", shared, func(r *rig) { r.edit("RESULTS", func(s *streamConfig) { s.Sealed = true }) },
		[]string{"error stream RESULTS: is sealed"}, ""},
	{"sealed dead letters", shared, func(r *rig) { r.edit("RESULTS_DEADLETTER", func(s *streamConfig) { s.Sealed = true }) },
		[]string{"error dead letters deadletter.>: is sealed"}, ""},
	{"counters", empty, func(r *rig) { r.add("RESULTS", "results.>", streamConfig{AllowMsgCounter: true, AllowDirect: true}) },
		[]string{"error stream RESULTS: counts (allow_msg_counter)"}, ""},
	{"one result for each subject", shared, func(r *rig) {
		r.edit("RESULTS", func(s *streamConfig) { s.MaxMsgsPerSubject, s.DiscardNewPerSubject = 1, true })
	}, []string{"warning stream RESULTS: refuses messages on a subject that has 1 ... (nats stream edit RESULTS --max-msgs-per-subject=-1 " +
		"--no-discard-per-subject)", "ok stream RESULTS ... duplicate window"}, ""},
	{"mapped results", shared, func(r *rig) {
		r.edit("RESULTS", func(s *streamConfig) { s.SubjectTransform = transform("results.>", "archive.>") })
	}, []string{`warning stream RESULTS: maps subjects ("results.>" to "archive.>") ... documented filters`}, ""},
	{"small results", shared, func(r *rig) { r.edit("RESULTS", func(s *streamConfig) { s.MaxMsgSize = 100 }) },
		[]string{"warning stream RESULTS: a result with its headers may have 1024 bytes, and stream RESULTS takes messages of 100 ... raise " +
			"max_msg_size of stream RESULTS"}, ""},
	{"inputs that go", shared, func(r *rig) { r.edit("INGEST", func(s *streamConfig) { s.Discard = jetstream.DiscardOld }) },
		[]string{"warning stream INGEST: deletes inputs that nobody has processed: max_bytes 4294967296, discard old ... nats stream edit " +
			"INGEST --discard new"}, ""},
	{"inputs that expire", shared, func(r *rig) { r.edit("INGEST", func(s *streamConfig) { s.MaxAge = time.Hour }) },
		[]string{"warning stream INGEST: deletes inputs that nobody has processed: max_age 1h0m0s"}, ""},
	{"dead letters that go", empty, func(r *rig) { r.add("GRAVES", "deadletter.>", streamConfig{MaxMsgs: 5}) },
		[]string{"warning dead letters deadletter.>: drops messages that nobody has read: max_msgs 5 ... nats stream edit GRAVES --max-msgs=-1"}, ""},
	{"fewer replicas than asked for", shared, func(r *rig) { r.topology.Kept.Replicas = 3 },
		[]string{"warning stream RESULTS: 1 replicas, and MILLRACE_PROVISION_REPLICAS is 3 ... (nats stream edit RESULTS --replicas 3)"}, ""},
	{"payloads larger than a batch", shared, func(r *rig) { r.use.BatchBytes = 1 << 20 },
		[]string{"warning server ... payloads over 1048576 bytes ... raise MILLRACE_BATCH_BYTES"}, "frames"},
	{"records larger than a batch", shared, func(r *rig) {
		r.use.BatchBytes, r.use.Frames = 1<<20, Frames{Framed: true, Records: 10, Bytes: roomy, Result: 10, ResultMore: 10}
	}, []string{"warning server ... records over 1048576 bytes ... raise MILLRACE_BATCH_BYTES", "ok frames ... up to 10 records"}, ""},
	{"records whose results their stream cuts", shared, func(r *rig) {
		r.use.Frames = Frames{Framed: true, Records: 1000, Bytes: roomy, Result: 1000, ResultMore: 1000}
		r.edit("RESULTS", func(s *streamConfig) { s.MaxMsgSize = 100 << 10 })
	}, []string{"ok frames ... more than about 101 records comes in parts, because stream RESULTS takes messages of 102400 bytes"}, ""},
	{"dead letters among all", empty, func(r *rig) { r.add("RESULTS", "*.>", streamConfig{NoAck: true}) }, // without NoAck, the server refuses the subjects
		[]string{"warning dead letters deadletter.> ... stored in the result stream RESULTS ... nats stream edit RESULTS --subjects 'results' " +
			"--subjects 'results.>' --force, then"}, ""},
	{"dead letters and markers among all", empty, func(r *rig) {
		r.exclusive(2)
		r.add("RESULTS", "*.>", streamConfig{NoAck: true})
	}, []string{"nats stream edit RESULTS --subjects 'commits.RESULTS.>' --subjects 'results' --subjects 'results.>' --force, then"}, ""},
	{"dead letters among results", empty, func(r *rig) { r.add("RESULTS", "results,results.>,deadletter,deadletter.>", streamConfig{}) },
		[]string{"nats stream edit RESULTS --subjects 'results' --subjects 'results.>' --force, then nats stream add RESULTS_DEADLETTER " +
			"--subjects 'deadletter' --subjects 'deadletter.>' --retention limits --max-bytes 1GiB --discard new --dupe-window 120s " +
			"--no-allow-direct --defaults"}, ""},
	{"dead letters among others", empty, func(r *rig) { r.add("RESULTS", "results.>,deadletter.>,other.>", streamConfig{}) },
		[]string{"nats stream edit RESULTS --subjects 'results.>' --subjects 'other.>' --force, then"}, ""},
}

var onceCases = []inspectCase{
	{"as made", shared, empty, []string{"ok stream RESULTS ... one commit a batch",
		"ok stream RESULTS ... duplicate window 25m0s ... be redelivered for 25m0s"}, ""},
	{"a short memory for ids", empty, func(r *rig) { r.add("RESULTS", "results.>", streamConfig{Duplicates: 10 * time.Second}) },
		[]string{"warning stream RESULTS ... duplicate window 10s ... delays for more than 5s ... --dupe-window 40s"}, ""},
	{"results that go when they are read", empty, func(r *rig) {
		r.add("RESULTS", "results.>", streamConfig{Duplicates: time.Minute, Retention: jetstream.WorkQueuePolicy})
	}, []string{"warning stream RESULTS ... duplicate window 1m0s ... be redelivered for 25m0s ... retention WorkQueue ... --dupe-window 1500s"}, ""},
	{"a consumer with few deliveries", shared, func(r *rig) {
		r.consume(func(c *consumerConfig) { c.AckWait, c.MaxDeliver = 10*time.Second, 4 })
	}, []string{"ok stream RESULTS ... be redelivered for 30s ... 3 deliveries"}, ""},
	{"a consumer that waits longer than the window", shared, func(r *rig) {
		r.edit("RESULTS", func(s *streamConfig) { s.Duplicates = time.Minute })
		r.consume(func(c *consumerConfig) { c.AckWait, c.MaxDeliver = time.Hour, 4 })
	}, []string{"ok stream RESULTS ... be redelivered for 3h0m0s ... a result older than 40s is looked up"}, ""},
	{"the consumer of a partition", empty, func(r *rig) {
		r.exclusive(2)
		r.topology.ExactlyOnce, r.topology.AckWait = Off, 20*time.Second
		r.provision()
		r.topology.AckWait = time.Minute
	}, []string{"ok stream RESULTS: one commit a batch", "ok stream RESULTS: duplicate window ... be redelivered for 1m40s"}, "exactly once"},
	{"commit markers", exclusive, empty, []string{
		"ok stream RESULTS: exactly once: each batch is committed with a marker (fast batches)",
		"ok dead letters deadletter.>: exactly once: dead letters are committed with a marker (atomic batches)"}, "duplicate window"},
	{"streams that take no markers", exclusive, func(r *rig) { r.olderStreams(Auto) }, []string{
		"warning stream RESULTS: within the duplicate window: the stream does not take commit markers (subject commits.RESULTS.>) ... " +
			"or set MILLRACE_EXACTLY_ONCE=off", "ok stream RESULTS: one commit a batch", "ok stream RESULTS: duplicate window",
		"warning dead letters deadletter.>: within the duplicate window: the stream does not take commit markers " +
			"(subject commits.RESULTS_DEADLETTER.>) ... or set MILLRACE_EXACTLY_ONCE=off"}, "MILLRACE_RESULT_IDS"},
	{"streams that must take markers", exclusive, func(r *rig) { r.olderStreams(Required); r.topology.ResultIDs = false }, []string{
		"error stream RESULTS: within ... MILLRACE_RESULT_IDS=false has no effect, and results have their ids ... or set MILLRACE_EXACTLY_ONCE=auto",
		"error dead letters deadletter.>: within the duplicate window ... or set MILLRACE_EXACTLY_ONCE=auto"}, ""},
	{"markers in a work queue", empty, func(r *rig) {
		r.exclusive(2)
		r.add("RESULTS", "results.>,commits.RESULTS.>", streamConfig{Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true})
	}, []string{"ok stream RESULTS: exactly once ... need a filter such as results.>",
		"warning stream RESULTS: keeps every commit marker ... (nats stream edit RESULTS --allow-rollup)"}, ""},
	{"no markers among no dead letters", exclusive, empty, nil, "which are no dead letters"},
	{"markers among dead letters", exclusive, func(r *rig) {
		const marker = "commits.RESULTS_DEADLETTER.INGEST.millrace."
		r.publish(marker+"0", marker+"1", "deadletter.web", marker+"0")
	}, []string{"ok dead letters deadletter.>: 3 of its 4 messages are commit markers, which are no dead letters; stored in stream RESULTS_DEADLETTER"}, ""},
}

// olderStreams replaces the output streams by streams of a worker without commit markers.
func (r *rig) olderStreams(wants ExactlyOnce) {
	r.Helper()
	for name, subjects := range map[string][]string{"RESULTS": {"results", "results.>"}, "RESULTS_DEADLETTER": {"deadletter", "deadletter.>"}} {
		r.edit(name, func(s *streamConfig) { s.Subjects, s.AllowAtomicPublish = subjects, false })
	}
	r.topology.ExactlyOnce = wants
}

var consumerCases = []inspectCase{
	{"as it should be", shared, empty, []string{"ok consumer millrace ... max ack pending 100000"}, ""},
	{"no acknowledgement", shared, func(r *rig) {
		r.consume(func(c *consumerConfig) { c.AckPolicy, c.MaxAckPending = jetstream.AckNonePolicy, 0 })
	}, []string{"error consumer millrace ... ack policy ... explicit acknowledgement"}, ""},
	{"all acknowledged at once", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }) },
		[]string{"error consumer millrace ... ack policy ... explicit acknowledgement"}, ""},
	{"one delivery", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.MaxDeliver = 1 }) },
		[]string{"error consumer millrace ... max deliver 1 ... raise it"}, ""},
	{"few deliveries", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.MaxDeliver = 4 }) },
		[]string{"warning consumer millrace ... never delivered again ... MILLRACE_MAX_DELIVER"}, ""},
	{"few at once", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.MaxAckPending = 999 }) },
		[]string{"warning consumer millrace ... can hold 1000 payloads ... raise max ack pending"}, ""},
	{"not durable", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.Durable, c.Name = "", "millrace" }) },
		[]string{"warning consumer millrace ... not durable"}, ""},
	{"another ack wait", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.AckWait = time.Minute }) },
		[]string{"warning consumer millrace ... ack wait 1m0s, and MILLRACE_ACK_WAIT is 5m0s ... set MILLRACE_ACK_WAIT=1m0s ... " +
			"nats consumer edit INGEST millrace --wait 5m0s"}, ""},
	{"a short ack wait", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.AckWait = time.Millisecond }) },
		[]string{"warning consumer millrace ... ack wait 1ms, and MILLRACE_LINGER is 1ms ... lower MILLRACE_LINGER"}, "set MILLRACE_ACK_WAIT"},
	{"fewer than asked for", shared, func(r *rig) {
		r.topology.AskedAckPending = 4000
		r.consume(func(c *consumerConfig) { c.MaxAckPending = 3999 })
	}, []string{"warning consumer millrace ... max ack pending 3999, and MILLRACE_MAX_ACK_PENDING is 4000 ... nats consumer edit INGEST millrace --max-pending 4000"}, ""},
	{"headers only", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.HeadersOnly = true }) },
		[]string{"error consumer millrace: headers only"}, ""},
	{"small requests", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.MaxRequestMaxBytes = 1000 }) },
		[]string{"warning consumer millrace: max request max bytes 1000"}, ""},
	{"fewer subjects", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.FilterSubjects = []string{"ingest.web.>"} }) },
		[]string{"warning consumer millrace ... ingest.web.> ... make them agree"}, ""},
	{"other subjects", shared, func(r *rig) { r.topology.Subjects = []string{"elsewhere.>"} },
		[]string{"warning consumer millrace: filters [ingest.>], and MILLRACE_SUBJECTS is [elsewhere.>] ... make them agree"}, ""},
	{"no filter", shared, func(r *rig) { r.consume(func(c *consumerConfig) { c.FilterSubjects = nil }) }, nil, "MILLRACE_SUBJECTS is"},
	{"no filter, and all subjects", shared, func(r *rig) {
		r.consume(func(c *consumerConfig) { c.FilterSubjects = nil })
		r.topology.Subjects = []string{">"}
	}, nil, "MILLRACE_SUBJECTS is"},
	{"no filter, and other subjects", shared, func(r *rig) {
		r.consume(func(c *consumerConfig) { c.FilterSubjects = nil })
		r.topology.Subjects = []string{"ingest.a"}
	}, []string{"warning consumer millrace: has no filter, so it gets every input of stream INGEST ... (nats consumer edit INGEST millrace --filter 'ingest.a' --force)"}, ""},
	{"paused", shared, func(r *rig) { r.pause("millrace") },
		[]string{"warning consumer millrace: is paused for  ... nats consumer resume INGEST millrace --force"}, ""},
	{"a partition is paused", exclusive, func(r *rig) { r.pause("millrace-1") },
		[]string{"warning consumer millrace-1: is paused for  ... nats consumer resume INGEST millrace-1 --force"}, ""},
	{"the consumer of a partition is another's", exclusive, func(r *rig) {
		if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", "millrace-1"); err != nil {
			r.Fatal(err)
		}
		c := consumerConfig{Durable: "millrace-1", FilterSubject: "0.a", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
			MaxAckPending: 99, HeadersOnly: true}
		if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", c); err != nil {
			r.Fatal(err)
		}
	}, []string{"error consumer millrace-1: ack policy AckExplicit: delete it and set MILLRACE_PROVISION=true",
		"error consumer millrace-1: filters [0.a], want [1.ingest.>]: make them agree", "error consumer millrace-1: max deliver 5: make it unlimited",
		"warning consumer millrace-1: max ack pending 99: the pipelines can hold 1000 payloads", "error consumer millrace-1: headers only"}, "millrace-0"},
	{"consumers are gone, with interest", empty, func(r *rig) {
		r.exclusive(8)
		r.provision()
		r.edit("INGEST", func(s *streamConfig) { s.Retention = jetstream.InterestPolicy })
		for _, name := range []string{"millrace-1", "millrace-4", "millrace-5", "millrace-7"} {
			if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", name); err != nil {
				r.Fatal(err)
			}
		}
	}, []string{"error (missing) consumer millrace-1: not there ... drops inputs for which there is no consumer ... seq 1 1)",
		"error (missing) consumers millrace-4 to 5: not there ... drops inputs for which there is no consumer ... seq 4 5)",
		"error (missing) consumer millrace-7: not there ... drops inputs for which there is no consumer ... seq 7 7)"}, "ok consumer"},
	{"the stream removes no single messages", exclusive, empty, nil, "can remove single messages"},
	{"the stream of shared delivery removes single messages", shared, func(r *rig) {
		r.edit("INGEST", func(s *streamConfig) { s.AllowRollup = true })
	}, nil, "can remove single messages"},
	{"the stream removes single messages", exclusive, func(r *rig) {
		r.edit("INGEST", func(s *streamConfig) { s.AllowMsgTTL, s.AllowRollup, s.MaxMsgsPerSubject = true, true, 5 })
	}, []string{"warning stream INGEST: can remove single messages: allow_msg_ttl, allow_rollup_hdrs, max_msgs_per_subject 5"}, ""},
}

func (r *rig) pause(consumer string) {
	r.Helper()
	if _, err := r.JS.PauseConsumer(r.Ctx(), "INGEST", consumer, time.Now().Add(time.Hour)); err != nil {
		r.Fatal(err)
	}
}

const processed = "processed inputs in stream INGEST: "

var processedCases = []inspectCase{
	{"as made", exclusive, empty, []string{"ok " + processed + "workers remove them"}, ""},
	{"a consumer holds the floor", shared, func(r *rig) { r.publish("ingest.a", "ingest.a", "ingest.a") },
		[]string{"ok " + processed + "workers remove them; consumer millrace holds the floor, 3 sequences before the end"}, ""},
	{"interest", exclusive, func(r *rig) {
		r.edit("INGEST", func(s *streamConfig) {
			s.Retention, s.Metadata = jetstream.InterestPolicy, map[string]string{"team": "a"}
		})
	}, []string{"warning " + processed + " ... nats-server may remove inputs that nobody has processed ... nats stream edit INGEST --retention limits " +
		"--discard new --metadata 'millrace-consumers=millrace-0,millrace-1' --metadata 'millrace-trim=INGEST' --metadata 'team=a')"}, ""},
	{"no mark", exclusive, func(r *rig) { r.edit("INGEST", func(s *streamConfig) { s.Metadata = nil }) },
		[]string{"warning " + processed + " ... the stream refuses new inputs when it is full ... nats stream edit INGEST --metadata " +
			"'millrace-consumers=millrace-0,millrace-1' --metadata 'millrace-trim=INGEST')"}, ""},
	{"no mark, and an age", exclusive, func(r *rig) { r.edit("INGEST", func(s *streamConfig) { s.Metadata, s.MaxAge = nil, 1e14 }) },
		nil, "warning " + processed},
	{"every input stays", exclusive, func(r *rig) {
		r.edit("INGEST", func(s *streamConfig) { s.Metadata = nil })
		r.topology.Kept.AskedEverything = true
	}, nil, "warning " + processed},
	{"the mark, and every input should stay", exclusive, func(r *rig) { r.topology.Kept.AskedEverything = true },
		[]string{"warning " + processed + " ... MILLRACE_STREAM_RETENTION asks for limits ... remove millrace-trim"}, ""},
	{"a consumer of another deployment is gone", exclusive, func(r *rig) {
		r.edit("INGEST", func(s *streamConfig) { s.Metadata[trim.ConsumersKey] += ",other" })
	}, []string{"warning " + processed + "they stay: registered consumers don't exist: other."}, ""},
	{"a work queue", empty, func(r *rig) {
		r.add("INGEST", "ingest.>", streamConfig{Retention: jetstream.WorkQueuePolicy})
		r.provision()
		r.publish("ingest.a")
	}, nil, "processed inputs"},
}

func TestInspect(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(streamCases, onceCases, consumerCases, processedCases, stateCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.start(r)
			c.change(r)
			lines := r.found()
			for _, want := range c.want {
				wantLine(t, lines, strings.Split(want, " ... ")...)
			}
			if all := strings.Join(lines, "\n"); c.not != "" && strings.Contains(all, c.not) {
				t.Errorf("a finding says %q:\n%s", c.not, all)
			}
		})
	}
}

// TestInspectOfReplicas shows that one replica is a warning only in a cluster, which could keep more.
func TestInspectOfReplicas(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[string]finding.Level{"": finding.OK, "east": finding.Warning} {
		i := &inspection{cluster: cluster}
		(&stream{inspection: i, have: streamConfig{Name: "RESULTS", Replicas: 1}}).durability("one replica")
		(&stream{inspection: i, have: streamConfig{Name: "RESULTS", Replicas: 3}}).durability("three replicas")
		if i.findings[0].Level != want || i.findings[1].Level != finding.OK {
			t.Errorf("in cluster %q: %v", cluster, i.findings)
		}
	}
}

// TestInputsLeftInAWorkQueue shows that acknowledged inputs are reported. A server that was killed may keep them.
func TestInputsLeftInAWorkQueue(t *testing.T) {
	t.Parallel()
	all := []string{"ingest.>"}
	for _, c := range []struct {
		floor   uint64 // the last acknowledged input; the stream starts at 1
		filters []string
		want    string // part of the advice; empty means no finding
	}{{0, all, ""}, {1, all, "nats stream purge INGEST --seq 2 --force"}, {2, all, "nats stream purge INGEST --seq 3 --force"},
		{2, nil, "nats stream purge INGEST --seq 3 --force"}, {2, []string{"ingest.b"}, ""}} {
		info := &jetstream.StreamInfo{Config: streamConfig{Subjects: all}, State: jetstream.StreamState{Msgs: 3, FirstSeq: 1}}
		consumer := &jetstream.ConsumerInfo{Config: consumerConfig{FilterSubjects: c.filters}, AckFloor: jetstream.SequenceInfo{Stream: c.floor}}
		i := &inspection{l: Topology{Stream: "INGEST"}}
		i.leftInQueue("", info, consumer)
		if text := fmt.Sprint(i.findings); (c.want == "") != (len(i.findings) == 0) || !strings.Contains(text, c.want) {
			t.Errorf("with filters %q and everything up to %d acknowledged: %s, want %q", c.filters, c.floor, text, c.want)
		}
	}
}
