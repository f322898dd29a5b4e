// Package partitioned is exclusive delivery. The input stream puts the number of a partition before each subject, and every
// partition has its own consumer. The server gives each consumer's messages to one worker at a time. The workers agree among
// themselves on which of them should have which partition. Results are stored in the order of their inputs, and one
// acknowledgement covers everything before it.
//
// Package ingest runs it for a worker with MILLRACE_DELIVERY=exclusive. The packages below are its parts: members tells which
// partitions this worker should have, and partition has the rules that need no server.
//
// Start reading at Mode, which holds a lease on each partition that is this worker's. A lease (lease.go) has a reader, which
// takes deliveries in order, a submitter, which packs them into batches, and a settler, which publishes results and
// acknowledges inputs. The model test runs real leases against a model of the server and describes what must hold.
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

// Settings are what exclusive delivery needs. The caller keeps ownership of all of it.
type Settings struct {
	Topology topology.Topology
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections // inputs come over any of them; everything else goes over the first
	JS       jetstream.JetStream
	Size     func(jetstream.Consumer) pull.Size // of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge

	Linger  time.Duration // how long the oldest payload of a batch waits for more
	Confirm bool          // have the server confirm every acknowledgement

	Log      *slog.Logger
	Observer Observer
	Records  inflight.RecordObserver // nil for none
	Batches  inflight.BatchObserver  // nil for none
	Stalls   *stall.Detector         // for the consumer of each partition
}

// Observer is told what happens to partitions. Calls come from several goroutines and must not block.
type Observer interface {
	// Pending reports how many messages the consumers of all partitions have yet to deliver.
	Pending(messages uint64)

	// Redelivered reports that a message came that had been delivered before.
	Redelivered()

	// Restarted reports that this worker has begun a partition again because something was wrong.
	Restarted()
}
