package topology

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

func transform(source, destination string) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: source, Destination: destination}
}

func TestStoredFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transform *jetstream.SubjectTransformConfig
		subject   string
		want      string
	}{
		{nil, "ingest.>", "ingest.>"},
		{transform(">", "{{partition(8)}}.>"), "ingest.>", "{{partition(8)}}.ingest.>"},
		{transform(">", "{{partition(8)}}.>"), "ingest.a", "{{partition(8)}}.ingest.a"},
		{transform("ingest.>", "in.>"), "ingest.>", "in.>"},
		{transform("ingest.>", "in.>"), "ingest.a.b", "in.a.b"},
		{transform("other.>", "in.>"), "ingest.>", "ingest.>"},
		{transform("ingest.*", "in.{{wildcard(1)}}.x"), "ingest.*", "in.*.x"},
		{transform("ingest.*", "in.$1"), "ingest.a", "in.*"},
		{transform("ingest.a.>", "in.>"), "ingest.>", "ingest.>,in.>"},
	} {
		if got := strings.Join(storedFilters(c.transform, []string{c.subject}), ","); got != c.want {
			t.Errorf("%+v stores %q as %q, want %q", c.transform, c.subject, got, c.want)
		}
	}
}

// TestFiltersOfAConsumerDoNotOverlap shows that overlapping filters are merged, because the server refuses them.
func TestFiltersOfAConsumerDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transform *jetstream.SubjectTransformConfig
		subjects  string
		want      string
	}{
		{nil, "out,out.>", "out,out.>"},
		{transform(">", "{{partition(8)}}.>"), "out,out.>", "*.out,*.out.>"},
		{transform("out.>", "archive.>"), "out,out.>", "out,archive.>"},
		{transform("out.a.>", "out.b.>"), "out,out.>", "out,out.>"},
		{transform("out.a.*", "out.*.$1"), "out.*.x", "out.*.*"},
		{transform("out.>", "all"), "out,out.>,dead.>", "out,all,dead.>"},
		{transform("out.>", ">"), "out,out.>,dead.>", ">"},
	} {
		if got := strings.Join(StoredFilters(c.transform, strings.Split(c.subjects, ",")), ","); got != c.want {
			t.Errorf("%+v stores %q for the filters %q, want %q", c.transform, c.subjects, got, c.want)
		}
	}
}

func TestOverlapWithPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ingest.>", "ingest.a", true}, {"ingest.>", "ingest", false},
		{"{{partition(8)}}.ingest.>", "ingest.>", false}, {"{{partition(8)}}.ingest.>", "7.ingest.>", true},
		{"{{partition(8)}}.ingest.>", "8.ingest.>", false}, {"{{partition(8)}}.ingest.>", "*.ingest.a", true},
		{"{{partition(8,1,2)}}.ingest.>", "0.>", true}, {"{{partition(8)}}.ingest.>", ">", true},
	} {
		if got := overlap(c.a, c.b); got != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("%q and %q: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestInspectOfAStreamWithPartitionsForShared uses a partitioned stream. It stores nothing under the subjects of a
// shared consumer.
func TestInspectOfAStreamWithPartitionsForShared(t *testing.T) {
	t.Parallel()
	for name, consumer := range map[string]bool{"with a consumer": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.provision()
			s := r.StreamConfig("INGEST")
			s.SubjectTransform = transform(">", "{{partition(6)}}.>")
			r.Create(s)
			if !consumer {
				if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", "millrace"); err != nil {
					t.Fatal(err)
				}
			}
			wantLine(t, r.found(10, roomy), "error stream INGEST", "it would process nothing", "MILLRACE_DELIVERY=exclusive and MILLRACE_PARTITIONS=6")
			err := Provision(r.Ctx(), r.JS, r.topology, quiet)
			if err == nil || !strings.Contains(err.Error(), "MILLRACE_PARTITIONS=6") {
				t.Errorf("provisioning: %v", err)
			}
			if consumer {
				return
			}
			if names := r.Consumers("INGEST"); len(names) > 0 {
				t.Errorf("it leaves consumers %v", names)
			}
		})
	}
}

// TestExclusiveOnAStreamThatIsNotForIt shows that the error names the obstacle and its advice helps. No consumers are
// left behind.
func TestExclusiveOnAStreamThatIsNotForIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream jetstream.StreamConfig
		found  string
		advice string
		not    string // text that must not occur
	}{
		"work queue": {
			jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, "workqueue retention", "set MILLRACE_DELIVERY=shared, or MILLRACE_STREAM", "2.14",
		},
		"work queue with partitions": {
			jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, SubjectTransform: partitionTransform(4)},
			"workqueue retention", "retention by limits and the subject transform", "2.14",
		},
		"another number of partitions": {
			jetstream.StreamConfig{SubjectTransform: partitionTransform(6)},
			"one of 6 partitions before its subjects, and MILLRACE_PARTITIONS is 4", "set MILLRACE_PARTITIONS=6", "MILLRACE_DELIVERY=shared",
		},
		"another transform": {
			jetstream.StreamConfig{SubjectTransform: transform("ingest.>", "in.>")}, "maps", "to a stream with the subject transform", "MILLRACE_DELIVERY=shared",
		},
		"none": {jetstream.StreamConfig{}, "does not put a partition before its subjects", "MILLRACE_DELIVERY=shared", "2.14"},
		"too few consumers": {
			jetstream.StreamConfig{SubjectTransform: partitionTransform(4), MaxConsumers: 3}, "maximum consumers limit", "how many consumers", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.stream.Name, c.stream.Subjects = "INGEST", []string{"ingest.>"}
			r.Create(c.stream)
			r.topology.Exclusive, r.topology.Partitions = true, 4
			err := Provision(r.Ctx(), r.JS, r.topology, quiet)
			if err == nil || !strings.Contains(err.Error(), c.found) || !strings.Contains(err.Error(), c.advice) {
				t.Errorf("provisioning: %v; want %q and %q", err, c.found, c.advice)
			} else if c.not != "" && strings.Contains(err.Error(), c.not) {
				t.Errorf("provisioning says %q: %v", c.not, err)
			}
			if names := r.Consumers("INGEST"); len(names) > 0 {
				t.Errorf("it leaves consumers %v behind", names)
			}
			if name == "too few consumers" {
				return
			}
			lines := r.found(10, roomy)
			wantLine(t, lines, "error stream INGEST", c.found, c.advice)
			if text := fmt.Sprint(lines); strings.Contains(text, "consumer millrace-0") {
				t.Errorf("consumers are asked for that would be of no use: %s", text)
			}
		})
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
			r.provision()
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

var quiet = slog.New(slog.DiscardHandler)

// rig has a server and the expected topology.
type rig struct {
	*natstest.Rig
	topology Topology
	frames   Frames
}

// newRig starts a server with options modified by changes.
func newRig(t *testing.T, changes ...func(*server.Options)) *rig {
	t.Helper()
	return withTopology(natstest.New(t, changes...))
}

func withTopology(r *natstest.Rig) *rig {
	return &rig{Rig: r, topology: Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
		ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
		MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000, Kept: defaults(),
	}}
}

// defaults returns the default limits of streams.
func defaults() Kept {
	return Kept{
		Trim: true, Inputs: NewBounds(0, 4<<30), Results: NewBounds(7*24*time.Hour, 4<<30), DeadLetters: NewBounds(0, 1<<30),
	}
}

func (r *rig) exclusive(partitions int) {
	r.topology.Exclusive, r.topology.Partitions = true, partitions
	r.topology.CommitPrefix, r.topology.ResultIDs = "commits", true
}

func (r *rig) provision() {
	r.Helper()
	if err := Provision(r.Ctx(), r.JS, r.topology, quiet); err != nil {
		r.Fatal(err)
	}
}
