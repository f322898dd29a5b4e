// Package shared implements shared delivery. Any number of workers pull from one consumer, and each input is
// acknowledged individually.
//
// The source pulls deliveries. The admission drops deliveries that are already settled, and sets the quarantine level of
// the others. Submitters pack deliveries of level 0 into batches for a pipeline. Settlers publish the results of
// completed batches, and the acknowledger then acknowledges the inputs. The ledger records the inputs that are in
// flight or were recently settled.
//
// The worker (package ingest) runs a Mode unless it uses exclusive delivery. Start reading at Mode.Run.
package shared

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
	"millrace/internal/streams"
)

// Options configures shared delivery. The caller keeps ownership of everything in it.
type Options struct {
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections
	JS       jetstream.JetStream
	Consumer jetstream.Consumer
	Size     pull.Size // size of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge
	Stalls  *stall.Detector // watches one consumer

	Limit   int           // number of deliveries after which a payload is tried alone
	Linger  time.Duration // maximum time that the oldest payload of a batch waits for more payloads
	Confirm bool          // whether the server confirms every acknowledgement

	Log      *slog.Logger
	Observer Observer
	Records  inflight.RecordObserver // may be nil
	Batches  inflight.BatchObserver  // may be nil
}

// Observer receives delivery events. Calls come from several goroutines and must not block.
type Observer interface {
	// Redelivered is called for each redelivery.
	Redelivered()

	// Pending is called with the number of messages that the consumer has not delivered yet.
	Pending(messages uint64)

	// Unacknowledged is called with the number of messages that are delivered to any worker but not acknowledged.
	Unacknowledged(messages uint64)
}
