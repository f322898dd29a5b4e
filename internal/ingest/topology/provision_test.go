package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

func (r *rig) wantSubjects(stream string, want ...string) {
	r.Helper()
	if got := r.StreamConfig(stream).Subjects; !slices.Equal(got, want) {
		r.Errorf("stream %s has subjects %v, want %v", stream, got, want)
	}
}

func TestProvisionCreatesWhatIsMissingAndNothingTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.wantSubjects("INGEST", "ingest.>")
	r.wantSubjects("RESULTS", "results", "results.>")
	r.wantSubjects("RESULTS_DEADLETTER", "deadletter", "deadletter.>")
	if s := r.StreamConfig("INGEST").Storage; s != jetstream.FileStorage {
		t.Errorf("storage is %v, want files", s)
	}
	results := r.StreamConfig("RESULTS")
	if !results.AllowBatchPublish || results.Duplicates != 25*time.Minute {
		t.Errorf("the result stream allows batches: %v, and knows ids for %v; want that it does, and for as long as inputs come again",
			results.AllowBatchPublish, results.Duplicates)
	}
	if dead := r.StreamConfig("RESULTS_DEADLETTER").Duplicates; dead != results.Duplicates {
		t.Errorf("the stream of dead letters knows ids for %v, want %v as the results'", dead, results.Duplicates)
	}
	if r.StreamConfig("INGEST").AllowBatchPublish {
		t.Error("the input stream was made to allow batches, which nobody asked for")
	}
	c := r.ConsumerInfo("INGEST", "millrace").Config
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != r.topology.AckWait || c.MaxAckPending != r.topology.MaxAckPending ||
		c.MaxDeliver != -1 || !slices.Equal(c.FilterSubjects, r.topology.Subjects) || c.Durable != "millrace" {
		t.Errorf("consumer is %+v", c)
	}

	before := r.ConsumerInfo("INGEST", "millrace").Created
	r.topology.AckWait *= 2
	r.provision()
	if got := r.ConsumerInfo("INGEST", "millrace"); got.Created != before || got.Config.AckWait != c.AckWait {
		t.Errorf("the second run changed the consumer: made %v, ack wait %v", got.Created, got.Config.AckWait)
	}
	if names := r.streamNames(); !slices.Equal(names, []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"}) {
		t.Errorf("streams %v", names)
	}
}

func TestProvisionKeepsStreamsWhereAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(2)
	r.topology.Storage = jetstream.MemoryStorage
	r.provision()
	for _, name := range []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"} {
		if s := r.StreamConfig(name).Storage; s != jetstream.MemoryStorage {
			t.Errorf("storage of %s is %v, want memory", name, s)
		}
	}
}

func TestProvisionBoundsTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		ackWait time.Duration
		deliver int
		want    time.Duration
	}{
		{time.Second, 3, 0}, // the server's default
		{30 * time.Second, 10, 5 * time.Minute},
		{time.Hour, 1000, time.Hour},
	} {
		l := r.topology
		l.AckWait, l.MaxDeliver = c.ackWait, c.deliver
		if got := l.resultPlan(server.VERSION).Duplicates; got != c.want {
			t.Errorf("ack wait %v, %d deliveries: a duplicate window of %v, want %v", c.ackWait, c.deliver, got, c.want)
		}
	}
}

func (r *rig) streamNames() (names []string) {
	r.Helper()
	list := r.JS.StreamNames(r.Ctx())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		r.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestProvisionLeavesDeadLettersWhereTheyAre(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "GRAVES", Subjects: []string{"deadletter.>"}})
	r.provision()
	r.wantSubjects("RESULTS", "results", "results.>")
	r.wantSubjects("GRAVES", "deadletter.>")
}

// TestProvisionLeavesDeadLettersInTheResultStream shows that a result stream keeps its dead letters if it is older
// than their own stream.
func TestProvisionLeavesDeadLettersInTheResultStream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := []string{"results", "results.>", "deadletter", "deadletter.>"}
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: before})
	r.provision()
	r.wantSubjects("RESULTS", before...)
	if names := r.streamNames(); !slices.Equal(names, []string{"INGEST", "RESULTS"}) {
		t.Errorf("streams %v", names)
	}
}

func TestProvisionAddsAStreamForDeadLetters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, MaxMsgs: 1000})
	r.provision()
	r.provision()
	r.wantSubjects("RESULTS", "results.>")
	r.wantSubjects("RESULTS_DEADLETTER", "deadletter", "deadletter.>")
	if maximum := r.StreamConfig("RESULTS").MaxMsgs; maximum != 1000 {
		t.Errorf("the stream that was there now takes %d messages, want 1000 as before", maximum)
	}
}

func TestProvisionSaysWhatStandsInItsWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		stream jetstream.StreamConfig
		want   []string
	}{
		{"input subjects taken", jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"ingest.web.>"}},
			[]string{`create stream "INGEST" on [ingest.>]`, "overlap", "MILLRACE_SUBJECTS"}},
		{"result subjects taken", jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"results.>"}},
			[]string{`create stream "RESULTS"`, "overlap", "MILLRACE_RESULT_PREFIX"}},
		{"some dead letters taken", jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"deadletter.web.*"}},
			[]string{`stream "OTHER" does not store all of "deadletter.>"`, "another prefix"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Create(c.stream)
			err := Provision(r.Ctx(), r.JS, r.topology, quiet)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestProvisionSaysWhyThereIsNoConsumer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Create(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, Retention: jetstream.WorkQueuePolicy})
	other := jetstream.ConsumerConfig{Durable: "other", AckPolicy: jetstream.AckExplicitPolicy}
	if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", other); err != nil {
		t.Fatal(err)
	}
	err := Provision(r.Ctx(), r.JS, r.topology, quiet)
	if err == nil || !strings.Contains(err.Error(), `create consumer "millrace" on stream "INGEST"`) ||
		!strings.Contains(err.Error(), "workqueue") {
		t.Errorf("Provision = %v, want that a work queue has one consumer", err)
	}
}

func TestMappedSubjects(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"ingest.web.en": "results.web.en", "ingest": "results", "a.b": "results.b",
	} {
		if got := MapSubject("results", subject); got != want {
			t.Errorf("%q becomes %q, want %q", subject, got, want)
		}
	}
	got := mappedFilters("out.put", []string{"ingest.>", "a.*.b", "*", ">"})
	if want := []string{"out.put.>", "out.put.*.b", "out.put", "out.put.>"}; !slices.Equal(got, want) {
		t.Errorf("filters become %v, want %v", got, want)
	}
}

func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ours, servers, want int }{
		{5, -1, 5}, {5, 0, 5}, {5, 10, 5}, {5, 6, 5}, {5, 5, 4}, {5, 2, 1},
		{5, 1, 1}, // the only delivery is used for a try
	} {
		if got := DeliveryLimit(c.ours, c.servers); got != c.want {
			t.Errorf("DeliveryLimit(%d, %d) = %d, want %d", c.ours, c.servers, got, c.want)
		}
	}
}
