// Package topology is what a worker has at the server: which streams and consumers with which subjects and settings. It makes
// what is missing (Provision) and says what is wrong with what is there (Inspect); it moves no payload.
//
// The command worker provisions and inspects with it, and the packages of ingest take names, subjects and the duplicate window from
// it. Start reading at Topology, then Provision and Inspect. There is an inspector for each subject (inspect_*.go), and all of them
// report to one inspection.
package topology

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Topology says where payloads come from and where results go.
type Topology struct {
	Stream   string   // the input stream
	Subjects []string // subject filters of the consumer
	Consumer string   // the durable pull consumer; with Exclusive the partitions' begin with it

	ResultStream     string // where results are stored
	ResultPrefix     string // takes the place of an input subject's first token
	DeadLetterPrefix string // likewise, for payloads given up

	Exclusive  bool // each worker has partitions of the stream to itself; otherwise all share one consumer
	Partitions int  // how many there are, for Exclusive

	MaxDeliver    int                   // a payload delivered more often than this is tried alone, and given up if it fails
	Storage       jetstream.StorageType // of streams created; files by default
	AckWait       time.Duration         // of a consumer created
	MaxAckPending int                   // of a consumer created

	AskedAckPending int // MaxAckPending where somebody named it, for Inspect to compare; otherwise 0
}

// provisioned describes the streams and consumers that Provision creates.
const provisioned = "created by Millrace (MILLRACE_PROVISION)"

// DeliveryLimit is how often a payload is tried. The server stops delivering after its own MaxDeliver, so the
// last of those deliveries is the last chance to dead-letter the payload and is not spent on trying, unless it
// is the only one.
func DeliveryLimit(ours, servers int) int {
	if servers > 0 {
		return min(ours, max(servers-1, 1))
	}
	return ours
}

// redeliverySpan is how long after its first delivery an input may be delivered for the last time that it is tried,
// if every worker that has it dies.
func redeliverySpan(ackWait time.Duration, deliveries int) time.Duration {
	return ackWait * time.Duration(deliveries)
}

// Use is what the worker is going to do with its topology, as far as settings of the server's must agree with it.
type Use struct {
	InFlight   int           // payloads that the pipelines can hold at once
	BatchBytes int           // what one batch takes
	Linger     time.Duration // how long the oldest payload of a batch waits for more
}
