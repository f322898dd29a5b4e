// Package partitioned implements exclusive delivery. The input stream prefixes each subject with a partition number,
// and each partition has its own consumer. The server delivers each consumer's messages to one worker at a time. The
// workers agree on an owner for each partition. Results are stored in the order of their inputs, and one
// acknowledgement covers all earlier inputs of the partition.
//
// Package ingest runs a Mode in each worker with MILLRACE_DELIVERY=exclusive. Package members determines the partitions
// that this worker should own. Package partition contains the rules that need no server.
//
// Start reading at Mode, which holds a lease on each of these partitions. A lease (lease.go) has three parts. The
// reader receives deliveries in order. The submitter packs them into batches. The settler publishes results and
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

// Options configures exclusive delivery. The caller keeps ownership of everything in it.
type Options struct {
	Topology topology.Topology
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections // pulls and acknowledgements use the result of ForPartition; all other traffic uses the first
	JS       jetstream.JetStream
	Size     func(jetstream.Consumer) pull.Size // size of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge

	Linger  time.Duration // maximum time that the oldest payload of a batch waits for more payloads
	Confirm bool          // whether the server confirms every acknowledgement

	Log      *slog.Logger
	Observer Observer
	Records  inflight.RecordObserver // may be nil
	Batches  inflight.BatchObserver  // may be nil
	Stalls   *stall.Detector         // watches the consumer of each partition
}

// Observer receives partition events. Calls come from several goroutines and must not block.
type Observer interface {
	// Pending reports the number of messages that the consumers of all partitions have not delivered yet.
	Pending(messages uint64)

	// Unacknowledged reports the number of messages that are delivered but not acknowledged, over all partitions and
	// workers.
	Unacknowledged(messages uint64)

	// Redelivered reports that a redelivered message arrived.
	Redelivered()

	// Restarted reports that this worker has restarted a lease after a fault.
	Restarted()

	// OperatorFault reports an operator's fault that an earlier owner of a partition recorded in the consumer's
	// metadata.
	OperatorFault(inflight.OperatorFault)
}

const (
	// restartsWindow is the period in which restartsMany restarts of a partition cause a warning. One restart recovers
	// from a single fault, but a recurring fault needs an administrator's attention.
	restartsWindow = time.Minute
	restartsMany   = 3

	// restartsSay is the minimum interval between two warnings about restarts of a partition.
	restartsSay = 10 * time.Second
)

// restarts counts and logs the restarts of a partition's lease.
type restarts struct {
	since  time.Time // start of the window
	n      int       // restarts in the window
	warned time.Time
	silent int // restarts since the last log line
}

// say records and logs a restart. If restarts recur, it logs a warning at most once per restartsSay.
func (r *restarts) say(log *slog.Logger, because error, now time.Time) {
	if now.Sub(r.since) > restartsWindow {
		r.since, r.n = now, 0
	}
	if r.n++; r.n < restartsMany {
		log.Info("beginning the partition anew", "because", because)
		return
	}
	if now.Sub(r.warned) < restartsSay {
		r.silent++
		return
	}
	log.Warn("beginning the partition anew, again and again; its inputs are held up", "because", because, "times", r.n,
		"within", now.Sub(r.since).Round(time.Second).String(), "not_logged", r.silent)
	r.warned, r.silent = now, 0
}
