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

func TestProvisionBoundsItsStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	for name, want := range map[string]jetstream.StreamConfig{
		"INGEST":             {Retention: jetstream.LimitsPolicy, MaxBytes: 4 << 30, Discard: jetstream.DiscardNew},
		"RESULTS":            {Retention: jetstream.LimitsPolicy, MaxBytes: 4 << 30, MaxAge: 168 * time.Hour, Discard: jetstream.DiscardNew},
		"RESULTS_DEADLETTER": {Retention: jetstream.LimitsPolicy, MaxBytes: 1 << 30, Discard: jetstream.DiscardNew},
	} {
		got := r.StreamConfig(name)
		if got.Retention != want.Retention || got.MaxBytes != want.MaxBytes || got.MaxAge != want.MaxAge || got.Discard != want.Discard || got.Replicas != 1 {
			t.Errorf("%s: retention %v, %d bytes, age %v, discard %v, %d replicas; want %+v", name, got.Retention, got.MaxBytes, got.MaxAge, got.Discard, got.Replicas, want)
		}
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
				t.Errorf("%s: metadata %v before the consumers are made, want a mark %v and %v", name, got.Metadata, c.marked, c.registered)
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

func (s stopped) CreateConsumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
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
		for i := range n {
			if _, err := r.JS.Publish(r.Ctx(), fmt.Sprintf("ingest.%d", i), []byte("x")); err != nil {
				t.Error(err)
			}
		}
	}}
	if err := createConsumers(r.Ctx(), js, r.topology, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if state := r.Stream("INGEST").CachedInfo().State; state.Msgs != n || state.Consumers != 4 {
		t.Errorf("%d inputs and %d consumers, want %d and 4", state.Msgs, state.Consumers, n)
	}
}

// TestProvisionChangesNoStreamThatExists shows that existing streams are unchanged, regardless of the settings.
func TestProvisionChangesNoStreamThatExists(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	given := jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}, Description: provisioned}
	r.Create(given)
	results := given
	results.Name, results.Subjects = "RESULTS", []string{"results", "results.>"}
	r.Create(results)
	before := []jetstream.StreamConfig{r.StreamConfig("INGEST"), r.StreamConfig("RESULTS")}
	r.topology.Kept.Inputs.AskedBytes, r.topology.Kept.Results.AskedAge, r.topology.Kept.AskedEverything = true, true, true
	r.provision()
	for i, name := range []string{"INGEST", "RESULTS"} {
		got := r.StreamConfig(name)
		if !sameStream(got, before[i]) {
			t.Errorf("%s was %+v, and is %+v", name, before[i], got)
		}
	}
}

func sameStream(a, b jetstream.StreamConfig) bool {
	return a.Retention == b.Retention && a.Discard == b.Discard && a.MaxBytes == b.MaxBytes && a.MaxAge == b.MaxAge && a.MaxMsgs == b.MaxMsgs &&
		a.MaxMsgsPerSubject == b.MaxMsgsPerSubject && a.MaxMsgSize == b.MaxMsgSize && a.MaxConsumers == b.MaxConsumers && a.Storage == b.Storage &&
		a.Replicas == b.Replicas && a.NoAck == b.NoAck && a.Duplicates == b.Duplicates && a.DenyDelete == b.DenyDelete && a.DenyPurge == b.DenyPurge &&
		a.AllowRollup == b.AllowRollup && a.AllowDirect == b.AllowDirect && a.MirrorDirect == b.MirrorDirect && a.AllowMsgTTL == b.AllowMsgTTL &&
		a.AllowBatchPublish == b.AllowBatchPublish && a.AllowAtomicPublish == b.AllowAtomicPublish && a.Compression == b.Compression &&
		sameSubjects(a.Subjects, b.Subjects) && sameTransform(a.SubjectTransform, b.SubjectTransform)
}

func sameTransform(a, b *jetstream.SubjectTransformConfig) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// jetStreamRoom limits the server's JetStream to the given number of bytes, in files and in memory.
func jetStreamRoom(bytes int64) func(*server.Options) {
	return func(o *server.Options) { o.JetStreamMaxStore, o.JetStreamMaxMemory = bytes, bytes }
}

// TestProvisionFitsIntoASmallServer shows that default sizes shrink to the server's free space, because the server
// reserves max_bytes. A size that the user chose is kept.
func TestProvisionFitsIntoASmallServer(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{4 << 30, 1 << 30, 512 << 20} {
		for _, storage := range []jetstream.StorageType{jetstream.FileStorage, jetstream.MemoryStorage} {
			t.Run(fmt.Sprintf("%s in %v", sizeFlag(bytes), storage), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, jetStreamRoom(bytes))
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
				for _, line := range r.found(1000, roomy) {
					if strings.Contains(line, "MAX_BYTES") {
						t.Errorf("the size that fits is reported: %s", line)
					}
				}
			})
		}
	}
	r := newRig(t, jetStreamRoom(1<<30))
	r.topology.Kept.Inputs.AskedBytes = true
	err := Provision(r.Ctx(), r.JS, r.topology, quiet)
	if err == nil || !strings.Contains(err.Error(), `create stream "INGEST" with max_bytes 4GiB`) || !strings.Contains(err.Error(), "MILLRACE_STREAM_MAX_BYTES") {
		t.Errorf("Provision = %v, want that the server has less than 4GiB", err)
	}
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

// oneReplica is a client of a cluster that refuses streams with several replicas.
type oneReplica struct {
	jetstream.JetStream
	nc     *nats.Conn
	reason string
}

func (o oneReplica) Conn() *nats.Conn { return o.nc }

func (o oneReplica) CreateStream(_ context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if c.Replicas > 1 {
		return nil, &jetstream.APIError{ErrorCode: errNoPeers, Description: o.reason}
	}
	return nil, nil
}

// TestWhyAStreamHasOneReplica shows that the warning names exactly the server's reason.
func TestWhyAStreamHasOneReplica(t *testing.T) {
	t.Parallel()
	s := natstest.Plain(t, server.Options{Cluster: server.ClusterOpts{Name: "east", Host: "127.0.0.1", Port: server.RANDOM_PORT}})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for _, reason := range []string{"no suitable peers for placement", "no suitable peers for placement, insufficient storage"} {
		log := natstest.NewLog(t)
		cr := creator{js: oneReplica{nc: nc, reason: reason}, log: log.Logger()}
		if _, err := cr.createShrinking(t.Context(), plan{bounds: Bounds{AskedBytes: true}, StreamConfig: jetstream.StreamConfig{Name: "INGEST"}}); err != nil {
			t.Fatal(err)
		}
		if want := `msg="the servers can't place three replicas, so the stream is on one server alone" stream=INGEST reason="` + reason + `"`; !log.Has(want) {
			t.Errorf("the log has no %s", want)
		}
	}
}

// TestAsManyConsumersAsTheStreamAllows shows that provisioning again counts existing consumers only once.
func TestAsManyConsumersAsTheStreamAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exclusive(4)
	c := r.topology.inputPlan().StreamConfig
	c.MaxConsumers = 4
	r.Create(c)
	for range 2 {
		r.provision()
	}
	if names := r.Consumers("INGEST"); len(names) != 4 {
		t.Errorf("the consumers are %v, want 4", names)
	}
}

// TestNewBoundsFitTheCommand shows that sizes have units. The nats command accepts no number above 2^31 - 1 without a
// unit.
func TestNewBoundsFitTheCommand(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{4 << 30: "4GiB", 4<<30 + 1: "4194305KiB", 0: "0", 1 << 20: "1MiB", 1: "1KiB", 3<<30 + 5<<20: "3077MiB"} {
		if got := sizeFlag(NewBounds(0, n).MaxBytes); got != want {
			t.Errorf("%d bytes become %s, want %s", n, got, want)
		}
	}
}
