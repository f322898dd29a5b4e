package topology

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"millrace/internal/ingest/natstest"
)

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
