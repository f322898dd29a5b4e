package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
)

// found returns the findings of Inspect, one per line.
func (r *rig) found(inFlight, batchBytes int) (lines []string) {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{InFlight: inFlight, BatchBytes: batchBytes, Linger: time.Millisecond, Frames: r.frames}) {
		missing := ""
		if f.Missing {
			missing = " (missing)"
		}
		lines = append(lines, fmt.Sprintf("%v%s %v", f.Level, missing, f))
		if (f.Advice == "") != (f.Level == finding.OK) {
			r.Errorf("finding %q has the advice %q", f, f.Advice)
		}
	}
	return lines
}

func wantLine(t testing.TB, lines []string, parts ...string) {
	t.Helper()
	if !slices.ContainsFunc(lines, func(line string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	}) {
		t.Errorf("no finding says %q:\n%s", parts, strings.Join(lines, "\n"))
	}
}

const roomy = 8 << 20 // large enough for any message that the server accepts

func TestInspectFindsNothingWrongWithWhatProvisionMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	lines := r.found(1000, roomy)
	for _, line := range lines {
		if !strings.HasPrefix(line, "ok ") {
			t.Error(line)
		}
	}
	if len(lines) != 8 {
		t.Errorf("%d findings, want server, input, three of the result stream, dead letters, consumer and processed inputs:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	wantLine(t, lines, "ok stream RESULTS", "one commit a batch")
	wantLine(t, lines, "ok stream RESULTS", "duplicate window 25m0s", "be redelivered for 25m0s")
}

func TestInspectNamesEverythingMissingAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lines := r.found(1000, roomy)
	for _, what := range []string{"stream INGEST", "stream RESULTS", "dead letters deadletter.>"} {
		wantLine(t, lines, "error (missing) "+what, "MILLRACE_PROVISION=true")
	}
	r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
	wantLine(t, r.found(1000, roomy), "error (missing) consumer millrace", "MILLRACE_PROVISION=true")
}

func TestInspectOfStreams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		streams []jetstream.StreamConfig
		want    [][]string
	}{
		{"result subjects nowhere", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"other.>"}}},
			[][]string{{"error stream RESULTS", `does not store ["results.>"] (no stream does)`, "add the subjects"}}},
		{"result subjects elsewhere", []jetstream.StreamConfig{
			{Name: "RESULTS", Subjects: []string{"other.>"}}, {Name: "MINE", Subjects: []string{"results.>"}}},
			[][]string{{"error stream RESULTS", "(stream MINE does)", "MILLRACE_RESULT_STREAM"}}},
		{"result subjects in part", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.web.>"}}},
			[][]string{{"error stream RESULTS", "does not store all of", "MILLRACE_RESULT_PREFIX"}}},
		{"dead letters in part", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.a"}}},
			[][]string{{"error dead letters", "does not store all of", "MILLRACE_DEADLETTER_PREFIX"}}},
		{"no acknowledgements", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.>"}, NoAck: true}},
			[][]string{{"error stream RESULTS", "no_ack", "clear no_ack"}}},
		{"input subjects elsewhere", []jetstream.StreamConfig{{Name: "INGEST", Subjects: []string{"other.>"}}},
			[][]string{{"warning stream INGEST", `stores nothing under "ingest.>"`, "MILLRACE_SUBJECTS"}}},
		{"memory", []jetstream.StreamConfig{
			{Name: "RESULTS", Subjects: []string{"results.>"}, Storage: jetstream.MemoryStorage},
			{Name: "INGEST", Subjects: []string{"ingest.>"}, Storage: jetstream.MemoryStorage}},
			[][]string{{"warning stream RESULTS", "Memory", "use file storage"}, {"warning stream INGEST", "use file storage"}}},
		{"no batches", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.>"}}},
			[][]string{{"warning stream RESULTS", "one publish a result", "set allow_batched"}}},
		{"a short memory for ids", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: 10 * time.Second}},
			[][]string{{"warning stream RESULTS", "duplicate window 10s", "delays for more than 5s", "--dupe-window 40s"}}},
		{"results that go when they are read", []jetstream.StreamConfig{{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: time.Minute,
			Retention: jetstream.WorkQueuePolicy}},
			[][]string{{"warning stream RESULTS", "duplicate window 1m0s", "be redelivered for 25m0s", "retention WorkQueue", "--dupe-window 1500s"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for _, s := range c.streams {
				r.Create(s)
			}
			lines := r.found(1000, roomy)
			for _, parts := range c.want {
				wantLine(t, lines, parts...)
			}
		})
	}
}

func TestInspectOfTheConsumer(t *testing.T) {
	t.Parallel()
	good := jetstream.ConsumerConfig{Durable: "millrace", FilterSubject: "ingest.>", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 5000, AckWait: 5 * time.Minute}
	for _, c := range []struct {
		name   string
		change func(*jetstream.ConsumerConfig)
		want   []string
	}{
		{"as it should be", func(*jetstream.ConsumerConfig) {}, []string{"ok consumer millrace", "max ack pending 5000"}},
		{"no acknowledgement", func(c *jetstream.ConsumerConfig) { c.AckPolicy, c.MaxAckPending = jetstream.AckNonePolicy, 0 },
			[]string{"error consumer millrace", "ack policy", "explicit acknowledgement"}},
		{"all acknowledged at once", func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy },
			[]string{"error consumer millrace", "ack policy", "explicit acknowledgement"}},
		{"one delivery", func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 },
			[]string{"error consumer millrace", "max deliver 1", "raise it"}},
		{"few deliveries", func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 4 },
			[]string{"warning consumer millrace", "never delivered again", "MILLRACE_MAX_DELIVER"}},
		{"few at once", func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 999 },
			[]string{"warning consumer millrace", "can hold 1000 payloads", "raise max ack pending"}},
		{"not durable", func(c *jetstream.ConsumerConfig) { c.Durable, c.Name = "", "millrace" },
			[]string{"warning consumer millrace", "not durable"}},
		{"another ack wait", func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute },
			[]string{"warning consumer millrace", "ack wait 1m0s, and MILLRACE_ACK_WAIT is 5m0s", "set MILLRACE_ACK_WAIT=1m0s", "nats consumer edit INGEST millrace --wait 5m0s"}},
		{"a short ack wait", func(c *jetstream.ConsumerConfig) { c.AckWait = time.Millisecond },
			[]string{"warning consumer millrace", "ack wait 1ms, and MILLRACE_LINGER is 1ms", "lower MILLRACE_LINGER"}},
		{"fewer than asked for", func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 3999 },
			[]string{"warning consumer millrace", "max ack pending 3999, and MILLRACE_MAX_ACK_PENDING is 4000", "nats consumer edit INGEST millrace --max-pending 4000"}},
		{"other subjects", func(c *jetstream.ConsumerConfig) { c.FilterSubject = "ingest.web.>" },
			[]string{"warning consumer millrace", "ingest.web.>", "make them agree"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
			r.topology.AskedAckPending = 4000
			config := good
			c.change(&config)
			if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", config); err != nil {
				t.Fatal(err)
			}
			wantLine(t, r.found(1000, roomy), c.want...)
		})
	}
}

// TestInspectOfAConsumerForOtherSubjects shows that filters outside MILLRACE_SUBJECTS are only a warning if the stream maps no
// subjects.
func TestInspectOfAConsumerForOtherSubjects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
	r.provision()
	r.topology.Subjects = []string{"elsewhere.>"}
	wantLine(t, r.found(1000, roomy), "warning consumer millrace: filters [ingest.>], and MILLRACE_SUBJECTS is [elsewhere.>]", "make them agree")
}

// TestInspectComparesTheDuplicateWindowWithTheConsumer shows that an existing consumer's own settings determine the
// number and time of redeliveries.
func TestInspectComparesTheDuplicateWindowWithTheConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: time.Minute})
	config := jetstream.ConsumerConfig{Durable: "millrace", FilterSubject: "ingest.>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: 10 * time.Second, MaxDeliver: 4}
	if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", config); err != nil {
		t.Fatal(err)
	}
	wantLine(t, r.found(1000, roomy), "ok stream RESULTS", "be redelivered for 30s", "3 deliveries")
	config.AckWait = time.Hour
	if _, err := r.JS.UpdateConsumer(r.Ctx(), "INGEST", config); err != nil {
		t.Fatal(err)
	}
	wantLine(t, r.found(1000, roomy), "ok stream RESULTS", "be redelivered for 3h0m0s", "a result older than 40s is looked up")

	r.topology.Exclusive, r.topology.Partitions = true, 2
	config.Durable, config.FilterSubject, config.AckWait = PartitionConsumer("millrace", 0), "0.ingest.>", 20*time.Second
	if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", config); err != nil {
		t.Fatal(err)
	}
	wantLine(t, r.found(1000, roomy), "ok stream RESULTS", "be redelivered for 1m0s")
}

// TestInspectOfReplicas shows that one replica is a warning only in a cluster, which could keep more.
func TestInspectOfReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for cluster, want := range map[string]finding.Level{"": finding.OK, "east": finding.Warning} {
		i := &inspection{cluster: cluster}
		(&stream{inspection: i, have: jetstream.StreamConfig{Name: "RESULTS", Replicas: 1}}).durability("one replica")
		(&stream{inspection: i, have: jetstream.StreamConfig{Name: "RESULTS", Replicas: 3}}).durability("three replicas")
		if i.findings[0].Level != want || i.findings[1].Level != finding.OK {
			t.Errorf("in cluster %q: %v", cluster, i.findings)
		}
	}
	r.provision()
	for _, line := range r.found(1000, roomy) {
		if strings.Contains(line, "--replicas") {
			t.Errorf("a server by itself is to keep more copies: %s", line)
		}
	}
}

func TestInspectOfTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	wantLine(t, r.found(1000, 1<<20), "warning server", "payloads over 1048576 bytes", "raise MILLRACE_BATCH_BYTES")
}

func TestInspectWithoutJetStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, withoutJetStream)
	lines := r.found(1000, roomy)
	wantLine(t, lines, "error server", "JetStream does not answer", "enable JetStream")
	if len(lines) != 1 {
		t.Errorf("more is said than that there is no JetStream:\n%s", strings.Join(lines, "\n"))
	}
}

// TestInspectWithoutTheRightToAsk shows that a missing permission for a request or its answer is reported. The
// missing answer must not be reported as missing JetStream.
func TestInspectWithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	for subject, refused := range map[string]server.Permissions{
		`"$JS.API.INFO"`: {Publish: &server.SubjectPermission{Deny: []string{"$JS.API.INFO"}}},
		`"_INBOX.`:       {Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *server.Options) {
				o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "worker", Permissions: &refused}}, "worker"
			})
			ctx, cancel := context.WithTimeout(r.Ctx(), 2*time.Second) // the answer never arrives
			defer cancel()
			list := Inspect(ctx, r.NC, r.topology, Use{})
			if len(list) != 1 || list[0].What != "permissions" || !strings.Contains(list[0].Found, subject) || !strings.Contains(list[0].Advice, "grant it to the worker's user") {
				t.Errorf("the findings are %v", list)
			}
		})
	}
}

// TestNoJetStreamWhereASettingSays shows that the finding names the setting for the JetStream domain or prefix.
func TestNoJetStreamWhereASettingSays(t *testing.T) {
	t.Parallel()
	for setting, api := range map[string]jsapi.API{
		"MILLRACE_NATS_JS_DOMAIN": {Domain: "nowhere"}, "MILLRACE_NATS_JS_PREFIX": {Prefix: "from.nowhere"},
	} {
		r := newRig(t)
		r.topology.API = api
		wantLine(t, r.found(1000, roomy), "error server", "JetStream does not answer", setting, "nowhere")
	}
}

func TestInspectOfAStreamWithoutPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision() // creates a stream with only one replica
	r.topology.Exclusive, r.topology.Partitions = true, 4
	lines := r.found(10, 1<<20)
	wantLine(t, lines, "error stream INGEST", "does not put a partition before its subjects", "{{partition(4)}}.>", "MILLRACE_DELIVERY=shared")
}

// TestInspectOfAStreamWithPartitionsThatRemovesSingleMessages shows a warning for partitioned streams that can remove
// single messages. The removal of an unacknowledged message acknowledges earlier ones.
func TestInspectOfAStreamWithPartitionsThatRemovesSingleMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(4)
	r.provision()
	const word = "can remove single messages"
	if lines := strings.Join(r.found(10, roomy), "\n"); strings.Contains(lines, word) {
		t.Errorf("of the stream as the worker creates it:\n%s", lines)
	}
	s := r.StreamConfig("INGEST")
	s.AllowMsgTTL, s.AllowRollup, s.MaxMsgsPerSubject = true, true, 5
	r.Create(s)
	wantLine(t, r.found(10, roomy), "warning stream INGEST", word, "allow_msg_ttl, allow_rollup_hdrs, max_msgs_per_subject 5")
}

// TestUnavailable checks which request errors are temporary, so the worker waits.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	api := func(code int, of jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: of, Description: "a text"}
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"no answer", context.DeadlineExceeded, true},
		{"no answer, of the client", nats.ErrTimeout, true},
		{"nobody responds", fmt.Errorf("look up: %w", nats.ErrNoResponders), true},
		{"without a connection", nats.ErrReconnectBufExceeded, true},
		{"cancelled", context.Canceled, false},
		{"connection closed", nats.ErrConnectionClosed, false},
		{"no JetStream", jetstream.ErrJetStreamNotEnabled, true},
		{"no JetStream for the account", fmt.Errorf("look up: %w", jetstream.ErrJetStreamNotEnabledForAccount), true},
		{"no leader of the cluster", api(503, 10008), true},
		{"no leader of the stream", api(500, 10118), true},
		{"too few peers yet", api(400, 10005), true},
		{"no such stream", jetstream.ErrStreamNotFound, false},
		{"no such consumer", jetstream.ErrConsumerNotFound, false},
		{"subjects overlap", api(400, 10065), false},
		{"the client's own", jetstream.ErrInvalidStreamName, false},
		{"anything else", errors.New("anything"), false},
	} {
		if got := Unavailable(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func withoutJetStream(o *server.Options) { o.JetStream = false }

// TestFindingsTellWhatIsUnanswered shows that missing JetStream may be temporary, unlike a missing stream.
func TestFindingsTellWhatIsUnanswered(t *testing.T) {
	t.Parallel()
	without := newRig(t, withoutJetStream)
	list := Inspect(without.Ctx(), without.NC, without.topology, Use{})
	if len(list) != 1 || !list[0].Unanswered || !strings.Contains(list[0].Found, "JetStream does not answer") {
		t.Errorf("without JetStream the findings are %v", list)
	}
	r := newRig(t)
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{}) {
		if f.Unanswered {
			t.Errorf("%v counts as unanswered", f)
		}
	}
}
