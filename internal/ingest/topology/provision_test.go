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

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/trim"
)

func TestProvisionCreatesWhatIsMissingAndNothingTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	for name, want := range map[string]streamConfig{
		"INGEST":             {Subjects: []string{"ingest.>"}, MaxBytes: 4 << 30},
		"RESULTS":            {Subjects: []string{"results", "results.>"}, MaxBytes: 4 << 30, MaxAge: 168 * time.Hour, AllowBatchPublish: true, Duplicates: 25 * time.Minute},
		"RESULTS_DEADLETTER": {Subjects: []string{"deadletter", "deadletter.>"}, MaxBytes: 1 << 30, Duplicates: 25 * time.Minute},
	} {
		got := r.StreamConfig(name)
		if !slices.Equal(got.Subjects, want.Subjects) || got.MaxBytes != want.MaxBytes || got.MaxAge != want.MaxAge ||
			got.AllowBatchPublish != want.AllowBatchPublish || got.Duplicates != max(want.Duplicates, defaultDuplicateWindow) ||
			got.Discard != jetstream.DiscardNew || got.Retention != jetstream.LimitsPolicy || got.Replicas != 1 || got.Storage != jetstream.FileStorage {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	before := r.ConsumerInfo("INGEST", "millrace")
	c := before.Config
	if c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != r.topology.AckWait || c.MaxAckPending != r.topology.MaxAckPending ||
		c.MaxDeliver != -1 || !slices.Equal(c.FilterSubjects, r.topology.Subjects) || c.Durable != "millrace" {
		t.Errorf("consumer is %+v", c)
	}
	r.topology.AckWait *= 2
	r.provision()
	if got := r.ConsumerInfo("INGEST", "millrace"); got.Created != before.Created || got.Config.AckWait != c.AckWait {
		t.Errorf("the second run changed the consumer: made %v, ack wait %v", got.Created, got.Config.AckWait)
	}
	if names := r.streamNames(); !slices.Equal(names, []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"}) {
		t.Errorf("streams %v", names)
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

// TestProvisionLeavesDeadLettersWhereTheyAre shows that only missing streams are created, and that existing ones are unchanged.
func TestProvisionLeavesDeadLettersWhereTheyAre(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, subjects, streams string }{
		{"GRAVES", "deadletter.>", "GRAVES INGEST RESULTS"},
		{"RESULTS", "results,results.>,deadletter,deadletter.>", "INGEST RESULTS"},
		{"RESULTS", "results.>", "INGEST RESULTS RESULTS_DEADLETTER"},
		{"INGEST", "ingest.>", "INGEST RESULTS RESULTS_DEADLETTER"},
	} {
		r := newRig(t)
		r.add(c.name, c.subjects, streamConfig{Description: provisioned})
		before := r.StreamConfig(c.name)
		k := &r.topology.Kept
		k.Inputs.AskedBytes, k.Results.AskedAge, k.AskedEverything = true, true, true
		r.provision()
		r.provision()
		if names := strings.Join(r.streamNames(), " "); names != c.streams {
			t.Errorf("with stream %s on %s: streams %s, want %s", c.name, c.subjects, names, c.streams)
		}
		if got := r.StreamConfig(c.name); !sameStream(got, before) {
			t.Errorf("%s was %+v, and is %+v", c.name, before, got)
		}
	}
}

func TestProvisionSaysWhatStandsInItsWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*rig)
		want   []string
	}{
		{"input subjects taken", func(r *rig) { r.add("OTHER", "ingest.web.>", streamConfig{}) },
			[]string{`create stream "INGEST" on [ingest.>]`, "overlap", "MILLRACE_SUBJECTS"}},
		{"result subjects taken", func(r *rig) { r.add("OTHER", "results.>", streamConfig{}) },
			[]string{`create stream "RESULTS"`, "overlap", "MILLRACE_RESULT_PREFIX"}},
		{"some dead letters taken", func(r *rig) { r.add("OTHER", "deadletter.web.*", streamConfig{}) },
			[]string{`stream "OTHER" does not store all of "deadletter.>"`, "another prefix"}},
		{"the consumer of a work queue taken", func(r *rig) {
			r.add("INGEST", "ingest.>", streamConfig{Retention: jetstream.WorkQueuePolicy})
			if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", consumerConfig{Durable: "other", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
				r.Fatal(err)
			}
		}, []string{`create consumer "millrace" on stream "INGEST"`, "workqueue", "A work queue allows one for each subject"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.change(r)
			err := Provision(r.Ctx(), r.JS, r.topology, quiet)
			wantLine(t, []string{fmt.Sprint(err)}, c.want...)
		})
	}
}

// TestProvisionMarksItsInputStream shows that with the defaults workers may trim the new stream. Its consumers are
// registered before they exist.
func TestProvisionMarksItsInputStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		exclusive, everything bool
		marked                bool
		registered            []string
	}{
		"shared":     {false, false, true, []string{"millrace"}},
		"exclusive":  {true, false, true, []string{"millrace-0", "millrace-1", "millrace-2"}},
		"everything": {true, true, false, nil},
	} {
		r := newRig(t)
		if c.exclusive {
			r.exclusive(3)
		}
		r.topology.Kept.Trim = !c.everything
		js := stopped{r.JS, r.topology.Consumers()[0], func() {
			got := r.StreamConfig("INGEST")
			if trim.Marked(got) != c.marked || !slices.Equal(trim.Registered(got), c.registered) {
				t.Errorf("%s: metadata %v before the consumers are created, want the trim annotation: %v, and %v", name, got.Metadata, c.marked, c.registered)
			}
		}}
		if err := Provision(r.Ctx(), js, r.topology, quiet); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		r.provision()
		second := r.topology
		second.Consumer, second.ResultStream, second.ResultPrefix, second.DeadLetterPrefix = "second", "SECOND", "second", "seconddead"
		if err := Provision(r.Ctx(), r.JS, second, quiet); err != nil {
			t.Fatal(err)
		}
		if got := r.StreamConfig("INGEST"); c.marked && len(trim.Registered(got)) != 2*len(c.registered) {
			t.Errorf("%s: two deployments have registered %v", name, trim.Registered(got))
		}
	}
}

// stopped is a client whose worker is stopped when it creates consumer at.
type stopped struct {
	jetstream.JetStream
	at        string
	meanwhile func()
}

func (s stopped) CreateConsumer(ctx context.Context, stream string, c consumerConfig) (jetstream.Consumer, error) {
	if c.Durable == s.at {
		s.meanwhile()
		return nil, context.Canceled
	}
	return s.JetStream.CreateConsumer(ctx, stream, c)
}

// TestAWorkerThatIsStoppedLeavesTheConsumersOfAnother shows that a stopped worker keeps consumers on which another
// worker already relies.
func TestAWorkerThatIsStoppedLeavesTheConsumersOfAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(4)
	r.Create(r.topology.inputPlan().StreamConfig)
	const n = 100
	js := stopped{r.JS, "millrace-2", func() {
		r.provision() // another worker, which finds the first two consumers
		r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprintf("ingest.%d", i)} })
	}}
	if err := createConsumers(r.Ctx(), js, r.topology, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if state := r.Stream("INGEST").CachedInfo().State; state.Msgs != n || state.Consumers != 4 {
		t.Errorf("%d inputs and %d consumers, want %d and 4", state.Msgs, state.Consumers, n)
	}
}

// TestProvisionReplicatesInACluster shows that a cluster of three servers keeps three replicas and a smaller one
// keeps one. A configured number takes precedence.
func TestProvisionReplicatesInACluster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, replicas, want int
	}{{3, 0, 3}, {3, 1, 1}, {2, 0, 1}} {
		t.Run(fmt.Sprintf("%d servers, %d replicas", c.servers, c.replicas), func(t *testing.T) {
			t.Parallel()
			r := withTopology(natstest.At(t, natstest.Cluster(t, c.servers)))
			r.exclusive(2)
			r.topology.Kept.Replicas = c.replicas
			log := natstest.NewLog(t)
			natstest.OK(t, Provision(r.Ctx(), r.JS, r.topology, log.Logger()))
			const reason = `msg="the servers can't place three replicas, so the stream is on one server alone" stream=INGEST reason="no suitable peers`
			if got, want := log.Has(reason), c.servers < 3; got != want {
				t.Errorf("the log has the reason for one replica: %v, want %v", got, want)
			}
			for _, name := range []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"} {
				if got := r.StreamConfig(name).Replicas; got != c.want {
					t.Errorf("%s has %d replicas, want %d", name, got, c.want)
				}
			}
			way := map[int]Commits{1: FastCommits, 3: AtomicCommits}[c.want]
			if got, found, _ := r.topology.CommitsOf(r.StreamConfig("RESULTS"), r.NC.ConnectedServerVersion()); got != way {
				t.Errorf("commits of the result stream are %d (%s), want %d", got, found, way)
			}
		})
	}
}

// TestProvisionFitsIntoASmallServer shows that default sizes shrink to the server's free space, because the server
// reserves max_bytes. A size that the user chose is kept.
func TestProvisionFitsIntoASmallServer(t *testing.T) {
	t.Parallel()
	room := func(bytes int64) func(*server.Options) {
		return func(o *server.Options) { o.JetStreamMaxStore, o.JetStreamMaxMemory = bytes, bytes }
	}
	for _, bytes := range []int64{4 << 30, 1 << 30, 512 << 20} {
		for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
			t.Run(fmt.Sprintf("%s in %v", sizeFlag(bytes), storage), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, room(bytes))
				r.topology.Storage = storage
				log := natstest.NewLog(t)
				if err := Provision(r.Ctx(), r.JS, r.topology, log.Logger()); err != nil {
					t.Fatal(err)
				}
				sizes, total := map[string]int64{}, int64(0)
				for _, name := range []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"} {
					sizes[name] = r.StreamConfig(name).MaxBytes
					if total += sizes[name]; sizes[name] < minBytes {
						t.Errorf("%s has %d bytes, less than %d", name, sizes[name], minBytes)
					}
				}
				if total > bytes || 4*sizes["INGEST"] < bytes || !log.Has("the server has no room for streams of the default size") {
					t.Errorf("the sizes are %v", sizes)
				}
				for _, line := range r.found() {
					if strings.Contains(line, "MAX_BYTES") {
						t.Errorf("a size that fits is reported: %s", line)
					}
				}
			})
		}
	}
	r := newRig(t, room(1<<30))
	r.topology.Kept.Inputs.AskedBytes = true
	err := Provision(r.Ctx(), r.JS, r.topology, quiet)
	wantLine(t, []string{fmt.Sprint(err)}, `create stream "INGEST" with max_bytes 4GiB`, "MILLRACE_STREAM_MAX_BYTES")
}

// TestWhyACreationFails shows that an offline server doesn't reduce the replicas, because it may return.
func TestWhyACreationFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why         func(*jetstream.APIError) bool
		code        jetstream.ErrorCode
		description string
		want        bool
	}{
		{noPlaces, errNoCluster, "replicas > 1 not supported in non-clustered mode", true},
		{noPlaces, errNoPeers, "no suitable peers for placement", true},
		{noPlaces, errNoPeers, "no suitable peers for placement, peer offline", false},
		{noPlaces, errNoPeers, "no suitable peers for placement, insufficient storage", true},
		{noPlaces, errNoStorage, "insufficient storage resources available", false},
		{noRoom, errNoStorage, "insufficient storage resources available", true},
		{noRoom, errNoMemory, "insufficient memory resources available", true},
		{noRoom, errNoPeers, "no suitable peers for placement, insufficient storage", true},
		{noRoom, errNoPeers, "no suitable peers for placement", false},
	} {
		if got := c.why(&jetstream.APIError{ErrorCode: c.code, Description: c.description}); got != c.want {
			t.Errorf("%d, %q: %v, want %v", c.code, c.description, got, c.want)
		}
	}
}

// TestAsManyConsumersAsTheStreamAllows shows that provisioning again counts existing consumers only once, and that none are created if
// the stream doesn't allow all.
func TestAsManyConsumersAsTheStreamAllows(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{4: 4, 3: 0} {
		r := newRig(t)
		r.exclusive(4)
		c := r.topology.inputPlan().StreamConfig
		c.MaxConsumers = limit
		r.Create(c)
		for range 2 {
			if err := fmt.Sprint(Provision(r.Ctx(), r.JS, r.topology, quiet)); want == 0 {
				wantLine(t, []string{err}, "maximum consumers limit is 3: raise how many consumers")
			}
		}
		if names := r.Consumers("INGEST"); len(names) != want {
			t.Errorf("the consumers are %v, want %d", names, want)
		}
	}
}

// TestNewBoundsFitTheCommand shows that sizes have units. The nats command accepts no number above 2^31 - 1 without a
// unit.
func TestNewBoundsFitTheCommand(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{4 << 30: "4GiB", 4<<30 + 1: "4194305KiB", 0: "none", 1 << 20: "1MiB", 1: "1KiB", 3<<30 + 5<<20: "3077MiB"} {
		if got := sizeFlag(NewBounds(0, n).MaxBytes); got != want {
			t.Errorf("%d bytes become %s, want %s", n, got, want)
		}
	}
}
