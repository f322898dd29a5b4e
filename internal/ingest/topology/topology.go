// Package topology describes what a worker uses at the server: streams and consumers with their subjects and
// settings. Provision creates what is missing, and Inspect reports problems. The package moves no payloads. Start
// reading at Topology.
//
// The command worker provisions and inspects with it, and the packages of ingest take names, subjects and the duplicate window from
// it. Start reading at Topology, then Provision and Inspect. There is an inspector for each subject (inspect_*.go), and all of them
// report to one inspection.
package topology

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/trim"
)

// Topology says where payloads come from and where results go.
type Topology struct {
	Stream   string   // the input stream
	Subjects []string // subject filters of the consumer
	Consumer string   // the durable pull consumer; with Exclusive the prefix of the partitions' consumers

	API jsapi.API // where the JetStream of all these streams answers

	ResultStream     string // where results are stored
	ResultPrefix     string // replaces the first token of an input's subject
	DeadLetterPrefix string // the same for dead letters

	ExactlyOnce  ExactlyOnce // of Exclusive: whether batches are committed with markers
	CommitPrefix string      // begins the subjects of commit markers; empty: there are none
	ResultIDs    bool        // whether results have their ids in Nats-Msg-Id; without commit markers they always have

	Exclusive  bool // each partition has one worker at a time; otherwise all workers share one consumer
	Partitions int  // the number of partitions, for Exclusive

	MaxDeliver    int                   // a payload delivered more often than this is tried alone, and given up if it fails
	Storage       jetstream.StorageType // of streams that are created; files by default
	AckWait       time.Duration         // of consumers that are created
	MaxAckPending int                   // of consumers that are created

	AskedAckPending int // MaxAckPending if the user set it, for Inspect to compare; otherwise 0

	Kept Kept        // what streams that are created keep
	Trim trim.Policy // whether this worker removes processed inputs from the input stream
}

// provisioned describes the streams and consumers that Provision creates.
const provisioned = "created by Millrace (MILLRACE_PROVISION)"

// DeliveryLimit returns how often a payload is tried. The server stops delivering after its own MaxDeliver. So the
// last of those deliveries is the last chance to publish a dead letter, and isn't used for a try unless it is the
// only one.
func DeliveryLimit(ours, servers int) int {
	if servers > 0 {
		return min(ours, max(servers-1, 1))
	}
	return ours
}

// redeliverySpan returns the time from an input's first delivery to the last one at which it is tried, if every
// worker that receives it dies.
func redeliverySpan(ackWait time.Duration, deliveries int) time.Duration {
	return ackWait * time.Duration(deliveries)
}

// Use describes how the worker will use its topology, as far as the server's settings must fit that.
type Use struct {
	InFlight   int           // payloads that the pipelines can hold at once
	BatchBytes int           // the maximum size of a batch
	Linger     time.Duration // how long the oldest payload of a batch waits for more
	Frames     Frames        // how messages hold records
}

// Frames describes how messages hold records, as far as the server's max_payload and the size of a batch must fit that. All sizes are
// in bytes.
type Frames struct {
	Framed     bool // messages may hold several records
	Compressed bool // messages may be compressed

	Records    int // the most records of a message
	Bytes      int // the most bytes of a message, after decompression
	Result     int // the most bytes of a result of one record
	ResultMore int // the most bytes that each further record adds
}

// none reports whether every message is one record as it is.
func (f Frames) none() bool { return !f.Framed && !f.Compressed }

// fit returns how many records a result of that many bytes has room for.
func (f Frames) fit(bytes int) int {
	if bytes < f.Result {
		return 0
	}
	return 1 + (bytes-f.Result)/max(f.ResultMore, 1)
}
