// Package topology describes the streams and consumers that a worker uses, with their subjects and settings. Provision creates
// missing streams and consumers, and Inspect reports problems. The package moves no payloads.
//
// The worker command provisions and inspects with this package. The packages of ingest get names, subjects and the duplicate window
// from it. Start reading at Topology, then the tables of settings.go and consumers.go, which Provision and Inspect follow.
package topology

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/trim"
	"millrace/internal/wildcard"
)

// Topology has the names and settings of a worker's streams and consumers.
type Topology struct {
	Stream   string   // the input stream
	Subjects []string // subjects of the input
	Whole    bool     // whether the consumer reads every subject of the stream, including subjects that are added later
	Consumer string   // the durable pull consumer; with Exclusive, the name prefix of the partitions' consumers

	API jsapi.API // JetStream API of all these streams

	ResultStream     string // the stream that stores results
	ResultPrefix     string // replaces the first token of an input's subject in the result's subject
	DeadLetterPrefix string // the same for a dead letter's subject

	ExactlyOnce  ExactlyOnce // whether batches are committed with markers; only with Exclusive
	CommitPrefix string      // prefix of the subjects of commit markers; empty means no markers
	Stateful     string      // name of the operator whose state needs commit markers; empty for none; only with Exclusive
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

// MaxAssets is the number of replicated streams and consumers above which a server is slow to elect their leaders.
const MaxAssets = 2000

// DeliveryLimit returns the maximum number of deliveries in which a worker tries a payload. ours is the worker's limit. servers is
// the consumer's MaxDeliver; 0 or less means no limit. The server stops delivering after MaxDeliver. The last delivery is reserved
// for publishing a dead letter, unless it is the only one.
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
	States     States        // sizes of the states of a stateful operator
}

// States has the sizes of the states of a stateful operator. Each partition has one state, and a log of it in the result stream.
// All sizes are in bytes; 0 means unknown.
type States struct {
	Partition int64 // memory of the state of one partition
	Memory    int64 // memory for states on each of a worker's devices
	Devices   int64 // number of a worker's devices, at least 1
	Log       int64 // maximum size of the log of one partition, of both generations
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

// Bounds has the limits of a new stream. The zero value has no limits.
type Bounds struct {
	MaxAge   time.Duration // maximum age of a message, even if it is unread; 0 means no limit
	MaxBytes int64         // maximum size of the stream, which then refuses messages; 0 means no limit. NewBounds rounds it

	AskedAge, AskedBytes bool // whether the user chose the value; otherwise it is a default
}

// NewBounds returns bounds as defaults, which the user did not choose. It rounds maxBytes up to whole KiB, because the nats command
// accepts large sizes only with a unit.
func NewBounds(maxAge time.Duration, maxBytes int64) Bounds {
	return Bounds{MaxAge: maxAge, MaxBytes: (maxBytes + kib - 1) / kib * kib}
}

// WithLog returns the bounds of a stream that also stores logs of the given size in bytes. It changes no value that the user chose.
func (b Bounds) WithLog(bytes int64) Bounds {
	if !b.AskedBytes && b.MaxBytes > 0 {
		b.MaxBytes = NewBounds(0, b.MaxBytes+bytes).MaxBytes
	}
	return b
}

const kib = 1 << 10

// Kept has the retention settings of new streams. The zero value keeps everything, with one replica, or three in a cluster.
type Kept struct {
	// Trim makes workers remove processed inputs (adr/0048). Without Trim, every input stays. Results always stay, because workers
	// look them up.
	Trim            bool
	AskedEverything bool // whether the user chose that every input stays

	Inputs, Results, DeadLetters Bounds

	Replicas     int  // 1 to 5; 0 means three in a cluster with enough servers, otherwise one
	AskedStorage bool // whether the user chose Topology.Storage
}

// ExactlyOnce is the setting for exactly-once results and dead letters with exclusive delivery.
type ExactlyOnce int

const (
	Auto     ExactlyOnce = iota // exactly once in streams that support commit markers, otherwise once within the duplicate window
	Required                    // exactly once; the worker doesn't start if a stream doesn't support commit markers
	Off                         // once within the duplicate window
)

// Commits is the kind of commit that stores a batch with its commit marker.
type Commits int

const (
	NoCommits     Commits = iota // no markers; a message is stored once within the duplicate window
	FastCommits                  // fast batches; the first message depends on the previous marker, and the last message is the new marker
	AtomicCommits                // atomic batches; the server stores all messages and the marker, or nothing
)

// CommitSubject returns the subject of a partition's commit markers in a stream. Two streams can't have the same subject, so the
// subject includes the name of the stream.
func CommitSubject(prefix, stream, input, consumer string, partition int) string {
	return prefix + "." + stream + "." + input + "." + consumer + "." + strconv.Itoa(partition)
}

// CommitSubjects returns the filter that matches every result of CommitSubject for a stream.
func CommitSubjects(prefix, stream string) string { return prefix + "." + stream + ".>" }

// mappedSubjects returns stream subjects that match every result of store.MapSubject with prefix.
func mappedSubjects(prefix string) []string {
	return []string{prefix, prefix + ".>"}
}

// mappedFilters maps filters of inputs to filters of the subjects that store.MapSubject returns for these inputs.
func mappedFilters(prefix string, inputs []string) []string {
	mapped := make([]string, len(inputs))
	for i, filter := range inputs {
		if mapped[i] = store.MapSubject(prefix, filter); filter == ">" {
			mapped[i] = prefix + ".>"
		}
	}
	return mapped
}

// sameSubjects reports whether two lists have the same subjects in any order.
func sameSubjects(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// allCovered reports whether each subject is covered by one of the filters.
func allCovered(subjects, filters []string) bool {
	return !slices.ContainsFunc(subjects, func(subject string) bool {
		return !slices.ContainsFunc(filters, func(f string) bool { return wildcard.Covers(f, subject) })
	})
}

// DeadLetterStream returns the name of the stream that stores dead letters, or "" if there is none.
func DeadLetterStream(ctx context.Context, js jetstream.JetStream, l Topology) (string, error) {
	return streamOf(ctx, js, l.DeadLetterPrefix, l.Subjects)
}

// streamOf returns the name of the stream that stores messages published under prefix for inputs with these
// subjects. It is empty if there is none. If streams store only some of those messages, the error is a
// *partlyStored, because no other stream can then store overlapping subjects.
func streamOf(ctx context.Context, js jetstream.JetStream, prefix string, inputs []string) (string, error) {
	first, none := "", ""
	for _, wanted := range mappedFilters(prefix, inputs) {
		switch name, err := streamCovering(ctx, js, wanted); {
		case err != nil:
			return "", err
		case name == "":
			none = wanted
		case first == "":
			first = name
		}
	}
	if first != "" && none != "" {
		return "", &partlyStored{stream: first, subject: none}
	}
	return first, nil
}

// streamCovering returns the name of the stream that stores every subject that matches wanted, or "" if there is none.
func streamCovering(ctx context.Context, js jetstream.JetStream, wanted string) (string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when the stream is found
	defer cancel()
	partly := ""
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject(wanted))
	for info := range streams.Info() {
		if allCovered([]string{wanted}, info.Config.Subjects) {
			return info.Config.Name, nil
		}
		partly = info.Config.Name
	}
	if err := streams.Err(); err != nil {
		return "", fmt.Errorf("find the stream for %q: %w", wanted, err)
	}
	if partly != "" {
		return "", &partlyStored{stream: partly, subject: wanted}
	}
	return "", nil
}

// partlyStored means that a stream stores some of the required subjects, and no stream stores the remaining ones.
type partlyStored struct{ stream, subject string }

func (e *partlyStored) Error() string {
	return fmt.Sprintf("stream %q does not store all of %q, and no other stream does: add the subject to it, or choose another prefix",
		e.stream, e.subject)
}
