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

// Settings are what shared delivery needs. The caller keeps ownership.
type Settings struct {
	Pipes    []*streams.Pipeline
	Conns    natsconn.Connections
	JS       jetstream.JetStream
	Consumer jetstream.Consumer
	Size     pull.Size // of a pull request

	Pool    *inflight.Pool
	Results *results.Writer
	Judge   *quarantine.Judge
	Stalls  *stall.Detector // for one consumer

	Limit   int           // deliveries of a payload before it is tried alone
	Linger  time.Duration // how long the oldest payload of a batch waits for more
	Confirm bool          // have the server confirm every acknowledgement

	Log      *slog.Logger
	Observer Observer
	Records  inflight.RecordObserver // nil for none
	Batches  inflight.BatchObserver  // nil for none
}

// Observer is told what the consumer delivers. Calls come from several goroutines and must not block.
type Observer interface {
	// Redelivered is called for each delivery that is not the first of its message.
	Redelivered()

	// Pending is told how many messages the consumer has yet to deliver.
	Pending(messages uint64)
}
