// Package partitioned implements exclusive delivery. The input stream puts the number of a partition before each subject, and
// every partition has its own consumer. The server gives each consumer's messages to one worker at a time. The workers agree on
// which of them should have which partition. Results are stored in the order of their inputs, and one acknowledgement covers
// everything before it.
//
// Package ingest runs it for a worker with MILLRACE_DELIVERY=exclusive. It uses two packages: members determines which partitions
// this worker should have, and partition has the rules that need no server.
//
// Start reading at Mode, which holds a lease on each partition that this worker should have. A lease (lease.go) has a reader,
// which takes deliveries in order, a submitter, which packs them into batches, and a settler, which publishes results and
// acknowledges inputs. The model test runs real leases against a model of the server and checks the invariants.
package partitioned

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

// Settings configures exclusive delivery. The caller still owns everything in it.
type Settings struct {
	Topology topology.Topology
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections // inputs arrive over any of them; all other traffic goes over the first
	JS       jetstream.JetStream
	Size     func(jetstream.Consumer) pull.Size // size of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge

	Linger  time.Duration // how long the oldest payload of a batch waits for more payloads
	Confirm bool          // whether the server confirms every acknowledgement

	Log      *slog.Logger
	Observer Observer
	Records  inflight.RecordObserver // nil for none
	Batches  inflight.BatchObserver  // nil for none
	Stalls   *stall.Detector         // covers the consumer of each partition
}

// Observer receives partition events. Calls come from several goroutines and must not block.
type Observer interface {
	// Pending reports how many messages the consumers of all partitions have not delivered yet.
	Pending(messages uint64)

	// Unacknowledged reports how many messages the consumers of all partitions have delivered, to this worker or to others, that
	// nobody has acknowledged yet.
	Unacknowledged(messages uint64)

	// Redelivered reports that a redelivered message arrived.
	Redelivered()

	// Restarted reports that this worker has restarted a lease after a fault.
	Restarted()

	// OperatorFault is called for each fault of an operator that earlier owners of a partition noted.
	OperatorFault(inflight.OperatorFault)
}
