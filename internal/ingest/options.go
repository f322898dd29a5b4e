package ingest

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/operator"
)

// Options says what the worker reads, where its results go, and how it treats what goes wrong.
type Options struct {
	Stream   string   // the input stream
	Subjects []string // subject filters of the consumer
	Consumer string   // the durable pull consumer

	ResultStream     string // where results are stored
	ResultPrefix     string // takes the place of an input subject's first token
	DeadLetterPrefix string // likewise, for payloads given up

	More []*nats.Conn // connections beside the worker's first, and like it the caller's: see MILLRACE_NATS_CONNECTIONS

	Operators []operator.Operator // as the pipelines run them
	Format    operator.Format     // of result bodies

	Exclusive  bool // each worker has partitions of the stream to itself; otherwise all share one consumer
	Partitions int  // how many there are, for Exclusive

	Linger       time.Duration // how long the oldest payload of a batch waits for more
	MaxDeliver   int           // a payload delivered more often than this is given up
	DrainTimeout time.Duration // how long stopping may take until the rest is given back
	ConfirmAcks  bool          // have the server confirm every acknowledgement of an input

	Provision     bool                  // create streams and consumer where missing
	Storage       jetstream.StorageType // of streams created; files by default
	AckWait       time.Duration         // of a consumer created
	MaxAckPending int                   // of a consumer created

	AskedAckPending int // MaxAckPending where somebody named it, for Inspect to compare; otherwise 0

	Logger   *slog.Logger
	Observer Observer
	Batches  BatchObserver // nil for none
}
