package lease

import (
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/stall"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
)

// Options configures a Mode. The caller keeps ownership of everything in it.
type Options struct {
	Topology topology.Topology
	// Conns are the worker's connections. With exclusive delivery, pulls and acknowledgements use the result of ForPartition. All other
	// requests use the first connection.
	Conns    natsconn.Connections
	JS       jetstream.JetStream
	Consumer jetstream.Consumer                 // the worker's consumer; with exclusive delivery, that of partition 0
	Size     func(jetstream.Consumer) pull.Size // size of a pull request

	*Devices // compute the inputs

	Results *results.Writer
	Share   *memory.Share   // memory of the inputs; nil if the worker has no other shard
	Stalls  *stall.Detector // watches the consumer, or the consumer of each partition

	State *StateOptions // nil without a stateful operator

	// Number is the number of the shard. With exclusive delivery, the partitions of different shards begin with different devices.
	Number int

	// Remembered is the maximum number of finished inputs that shared delivery remembers, to recognize redeliveries. 0 means 65,536.
	Remembered int

	Limit   int  // number of deliveries or failures after which a payload is given up; with shared delivery, it is then tried alone
	Confirm bool // whether the server confirms every acknowledgement

	Log      *slog.Logger
	Observer Observer
}

// StateOptions configures the states of a stateful operator.
type StateOptions struct {
	Operator operator.Stateful
	Records  int   // records of a generation; see device.StateSize
	Bytes    int64 // maximum memory for states on each device, of all partitions and their copies together
	Begin    bool  // begin an empty state if the log of a state is lost or has other parameters; otherwise the worker ends with an error
	Standby  bool  // keep copies of the states of partitions that other workers own, as far as Bytes allows
}

// Observer receives delivery events. Calls come from several goroutines and must not block.
type Observer interface {
	// Pending is called with the number of messages that the consumers of all partitions have not delivered yet.
	Pending(messages uint64)

	// Unacknowledged is called with the number of messages that are delivered to any worker and not acknowledged, over all partitions.
	Unacknowledged(messages uint64)

	// Redelivered is called for each redelivery.
	Redelivered()

	// Restarted is called when this worker restarts a lease after a fault.
	Restarted()

	// OperatorFault is called for an operator's fault that an earlier owner of a partition recorded in the consumer's metadata.
	OperatorFault(inflight.OperatorFault)

	// StateReplayed is called with the bytes that are read from the log of a state.
	StateReplayed(bytes int)

	// StateTrimFailed is called when old entries could not be removed from the log of a state.
	StateTrimFailed()
}

// StateFigures are figures of a worker's states, for metrics.
type StateFigures struct {
	Owned         []device.StateStats // of the partitions that the worker owns
	LogBytes      int64               // size of their logs; see statelog.Replica
	Waiting       int                 // partitions that the worker should own, and for whose state it has no room
	Decided, Hits uint64              // see device.StateStats; of all states since the worker's start
}
