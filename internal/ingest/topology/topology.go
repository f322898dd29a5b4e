// Package topology describes the streams and consumers that a worker uses, with their subjects and settings. Provision creates
// missing streams and consumers, and Inspect reports problems. The package moves no payloads.
//
// The worker command provisions and inspects with this package. The packages of ingest get names, subjects and the duplicate window
// from it. Start reading at Topology, then Provision and Inspect. Each topic has its own inspector (inspect_*.go), and all
// inspectors report to one inspection.
package topology

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/trim"
)

// Topology has the names and settings of a worker's streams and consumers.
type Topology struct {
	Stream   string   // the input stream
	Subjects []string // subject filters of the consumer
	Consumer string   // the durable pull consumer; with Exclusive, the name prefix of the partitions' consumers

	API jsapi.API // JetStream API of all these streams

	ResultStream     string // the stream that stores results
	ResultPrefix     string // replaces the first token of an input's subject in the result's subject
	DeadLetterPrefix string // the same for a dead letter's subject

	ExactlyOnce  ExactlyOnce // whether batches are committed with markers; only with Exclusive
	CommitPrefix string      // prefix of the subjects of commit markers; empty means no markers
	ResultIDs    bool        // whether results have ids in Nats-Msg-Id; always the case without commit markers

	Exclusive  bool // whether each partition has one worker at a time; otherwise all workers share one consumer
	Partitions int  // number of partitions; only with Exclusive

	MaxDeliver    int                   // a payload with more deliveries than this is tried alone, and given up if it fails
	Storage       jetstream.StorageType // storage of new streams; the default is files
	AckWait       time.Duration         // AckWait of new consumers
	MaxAckPending int                   // MaxAckPending of new consumers

	AskedAckPending int // MaxAckPending if the user set it, otherwise 0; only for Inspect

	Kept Kept        // retention settings of new streams
	Trim trim.Policy // whether this worker removes processed inputs from the input stream
}

// provisioned is the description of the streams and consumers that Provision creates.
const provisioned = "created by Millrace (MILLRACE_PROVISION)"

// DeliveryLimit returns the number of deliveries in which a payload is tried. ours is the worker's limit. servers is the
// consumer's MaxDeliver; 0 or less means no limit. The server stops delivering after MaxDeliver. The last delivery is reserved for
// publishing a dead letter, unless it is the only one.
func DeliveryLimit(ours, servers int) int {
	if servers > 0 {
		return min(ours, max(servers-1, 1))
	}
	return ours
}

// redeliverySpan returns the maximum time from an input's first to its last delivery, if every worker that receives the input dies.
func redeliverySpan(ackWait time.Duration, deliveries int) time.Duration {
	return ackWait * time.Duration(deliveries)
}

// Use has the worker's settings that the server's settings must fit.
type Use struct {
	InFlight   int           // number of payloads that the pipelines can hold at once
	BatchBytes int           // the maximum size of a batch in bytes
	Linger     time.Duration // longest wait of a batch's oldest payload for more payloads
	Frames     Frames        // settings of frames
}

// Frames has the settings of frames that the server's max_payload and the size of a batch must fit. All sizes are in bytes.
type Frames struct {
	Framed     bool // whether messages may contain several records
	Compressed bool // whether messages may be compressed

	Records    int // maximum number of records of a message
	Bytes      int // maximum size of a message after decompression
	Result     int // maximum size of a result of one record
	ResultMore int // maximum number of bytes that each further record adds
}

// none reports whether every message is a single uncompressed record.
func (f Frames) none() bool { return !f.Framed && !f.Compressed }

// fit returns the number of records whose results fit into a result of the given bytes.
func (f Frames) fit(bytes int) int {
	if bytes < f.Result {
		return 0
	}
	return 1 + (bytes-f.Result)/max(f.ResultMore, 1)
}
