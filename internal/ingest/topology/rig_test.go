package topology

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/natstest"
)

type (
	streamConfig   = jetstream.StreamConfig
	consumerConfig = jetstream.ConsumerConfig
)

var quiet = slog.New(slog.DiscardHandler)

const roomy = 8 << 20 // large enough for any message that the server accepts

// rig has a server, the expected topology, and its use.
type rig struct {
	*natstest.Rig
	topology Topology
	use      Use
}

// newRig starts a server with options modified by changes.
func newRig(t *testing.T, changes ...func(*server.Options)) *rig {
	t.Helper()
	return withTopology(natstest.New(t, changes...))
}

func withTopology(r *natstest.Rig) *rig {
	return &rig{Rig: r, use: Use{InFlight: 1000, BatchBytes: roomy, Linger: time.Millisecond}, topology: Topology{
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

// add creates a stream with subjects that are separated by commas.
func (r *rig) add(name, subjects string, c streamConfig) {
	r.Helper()
	c.Name, c.Subjects = name, strings.Split(subjects, ",")
	r.Create(c)
}

// edit changes a stream.
func (r *rig) edit(name string, change func(*streamConfig)) {
	r.Helper()
	c := r.StreamConfig(name)
	change(&c)
	r.Create(c)
}

// consume recreates the consumer of shared delivery with the configuration of Provision, modified by change.
func (r *rig) consume(change func(*consumerConfig)) {
	r.Helper()
	if err := r.JS.DeleteConsumer(r.Ctx(), "INGEST", "millrace"); err != nil {
		r.Fatal(err)
	}
	c := r.topology.newConsumer()
	change(&c)
	if _, err := r.JS.CreateConsumer(r.Ctx(), "INGEST", c); err != nil {
		r.Fatal(err)
	}
}

// publish stores an empty message on each subject.
func (r *rig) publish(subjects ...string) {
	r.Helper()
	r.Publish(0, len(subjects), func(i int) *nats.Msg { return &nats.Msg{Subject: subjects[i]} })
}

// found returns the findings of Inspect, one per line.
func (r *rig) found() (lines []string) {
	r.Helper()
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, r.use) {
		missing := ""
		if f.Missing {
			missing = " (missing)"
		}
		lines = append(lines, fmt.Sprintf("%v%s %v", f.Level, missing, f))
		if (f.Advice == "") != (f.Level == finding.OK) {
			r.Errorf("finding %q has the advice %q", f, f.Advice)
		}
		if f.Unanswered != strings.Contains(f.Found, "JetStream does not answer") {
			r.Errorf("%v counts as unanswered: %v", f, f.Unanswered)
		}
	}
	return lines
}

// wantLine fails the test unless one of the lines has all the parts.
func wantLine(t testing.TB, lines []string, parts ...string) {
	t.Helper()
	if !slices.ContainsFunc(lines, func(line string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
	}) {
		t.Errorf("no finding says %q:\n%s", parts, strings.Join(lines, "\n"))
	}
}

// inspected returns the findings of a check of a stream that holds the given number of bytes.
func inspected(p plan, have streamConfig, bytes uint64, check func(*stream)) []finding.Finding {
	s := &stream{inspection: &inspection{}, plan: p, what: "stream S", have: have, state: jetstream.StreamState{Bytes: bytes}}
	check(s)
	return s.findings
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

// sameStream compares two configurations except for the description and the order of the subjects.
func sameStream(a, b streamConfig) bool {
	for _, c := range []*streamConfig{&a, &b} {
		c.Description, c.Subjects = "", slices.Sorted(slices.Values(c.Subjects))
	}
	return reflect.DeepEqual(a, b)
}

func transform(source, destination string) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: source, Destination: destination}
}
