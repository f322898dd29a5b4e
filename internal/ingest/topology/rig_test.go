package topology

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
)

// quiet is a logger that discards everything.
var quiet = slog.New(slog.DiscardHandler)

// rig has a server, a client, and the topology that a worker should find there.
type rig struct {
	t        *testing.T
	nc       *nats.Conn
	js       jetstream.JetStream
	topology Topology
	frames   Frames
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r := &rig{t: t, topology: Topology{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
		ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
		MaxDeliver: 5, AckWait: 5 * time.Minute, MaxAckPending: 100000, Kept: defaults(),
	}}
	if r.nc, err = nats.Connect(s.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	if r.js, err = jetstream.New(r.nc); err != nil {
		t.Fatal(err)
	}
	return r
}

// defaults returns what streams keep if no variable is set, with shared delivery.
func defaults() Kept {
	return Kept{
		Retention: jetstream.WorkQueuePolicy, Inputs: NewBounds(0, 4<<30), Results: NewBounds(7*24*time.Hour, 4<<30), DeadLetters: NewBounds(0, 1<<30),
	}
}

// exclusive makes the rig's worker use exclusive delivery.
func (r *rig) exclusive(partitions int) {
	r.topology.Exclusive, r.topology.Partitions, r.topology.Kept.Retention = true, partitions, jetstream.InterestPolicy
	r.topology.CommitPrefix, r.topology.ResultIDs = "commits", true
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) provision() {
	r.t.Helper()
	if err := Provision(r.ctx(), r.js, r.topology, quiet); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) createStream(c jetstream.StreamConfig) {
	r.t.Helper()
	if _, err := r.js.CreateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) streamConfig(name string) jetstream.StreamConfig {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().Config
}

// consumerInfo reads the consumer's state from the server.
func (r *rig) consumerInfo() *jetstream.ConsumerInfo {
	r.t.Helper()
	c, err := r.js.Consumer(r.ctx(), r.topology.Stream, r.topology.Consumer)
	if err != nil {
		r.t.Fatal(err)
	}
	return c.CachedInfo()
}
