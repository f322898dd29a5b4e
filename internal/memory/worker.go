package memory

import (
	"cmp"
	"fmt"

	"millrace/internal/frame"
)

// Worker has the settings that bound the messages of a worker, in number and in bytes. A worker with a limit divides it as follows:
//
//   - fixed shares that are in use at every load: prefetched messages, connections and the ledger of shared delivery
//   - one frame of the largest size per pipeline
//   - an eighth of the rest for idle buffers, and seven eighths for all messages in flight, as the limit of the Budget
//
// Without a limit, the Budget is as large as the batches in flight can require.
type Worker struct {
	Messages

	Limit      int64 // bytes for all shares in the list above; 0 means no limit
	MaxPayload int64 // size in bytes of the largest message that the server delivers

	Pipelines                 int
	Slots                     int // batches of all pipelines that can be filling or on a device
	BatchPayloads, BatchBytes int // maximum size of a batch

	Consumers   int      // consumers that the worker pulls from at once
	Requests    Requests // the largest pull requests that the consumers allow
	Connections int

	// Many is true if the worker may get any number of consumers. Then the whole quarter of the limit for prefetched messages is fixed, and
	// the Budget is twice as large without a limit, because each shard may only hold as much as remains free (see Share).
	Many bool
}

const (
	// SlotsPerLane is the number of batches of a lane that can be filling or on the device (streams.Schedule.Buffers).
	SlotsPerLane = 2

	// BatchesPerSlot is the number of batches that may be in flight, from pull to acknowledgement, per batch that can be on a device.
	// Publishing a batch takes milliseconds, but the device needs only a fraction of a millisecond for it. Most batches in flight are
	// therefore being published. With fewer batches, the device would wait for the server.
	BatchesPerSlot = 8

	// FullPerSlot is the number of full batches per slot that fit into memory: one on the device and one being published.
	FullPerSlot = 2

	// Queued is the maximum number of a consumer's deliveries that wait between the pull and the packers.
	Queued = 4096

	// connectionBytes is the memory for a connection's read and write buffers. There is no reconnect buffer.
	connectionBytes = 1 * mib

	// ledgerBytes is the memory of the ledger of shared delivery for 65,536 settled inputs and 65,536 returned inputs.
	ledgerBytes = 12 * mib

	// idleShare limits idle buffers to an eighth of the memory.
	idleShare = 8

	// minDeliveries is the number of empty payloads that must fit into the memory.
	minDeliveries = 1024
)

// InFlight returns the maximum number of payloads that can be in flight, which means delivered and not yet acknowledged. They are in
// batches, in queues, and on their way from the server.
func (w *Worker) InFlight() int {
	return BatchesPerSlot*w.Slots*w.BatchPayloads + w.Consumers*(PendingRequests*RequestMessages+Queued)
}

// Full returns the number of payloads that must be in flight for full batches. Each slot needs one batch on the device and one that is
// being published.
func (w *Worker) Full() int { return FullPerSlot * w.Slots * w.BatchPayloads }

// MaxAckPending returns the default of the consumer's MaxAckPending: twice Full.
func (w *Worker) MaxAckPending() int { return 2 * w.Full() }

// parts returns the fixed shares, the memory for frames, and the minimum memory for messages in flight and idle buffers. This minimum is
// enough for two payloads of the maximum size, and for minDeliveries empty payloads.
func (w *Worker) parts() (fixed, frames, least int64) {
	prefetched := int64(w.Consumers) * w.PullRequests().memory(w.MaxPayload)
	if w.Many {
		prefetched = max(prefetched, w.Limit/pullShare)
	}
	fixed = prefetched + int64(w.Connections)*connectionBytes + ledgerBytes
	frames = int64(w.Pipelines) * w.largestFrame(w.MaxPayload)
	empty, perByte := w.delivery()
	largest := min(w.MaxPayload, int64(w.BatchBytes))
	least = 2*(largest+largest/8+perByte*largest) + minDeliveries*empty
	return fixed, frames, least * idleShare / (idleShare - 1)
}

// New returns a budget for a worker with these settings. It returns an *Error if the limit is too low.
func New(w Worker) (*Budget, error) {
	w.Split.MaxBytes, w.Split.MaxRecord = cmp.Or(w.Split.MaxBytes, frame.DefaultMaxBytes), w.BatchBytes
	b := &Budget{Messages: w.Messages, splits: w.Splits(), short: make(chan struct{}), turns: map[any]*Turn{}}
	b.empty, b.perByte = w.delivery()
	batches, bytes := int64(FullPerSlot*w.Slots), int64(w.BatchBytes)
	if w.Many {
		batches *= 2
	}
	b.submittedLimit = batches * bytes
	b.Limit = batches * (bytes + bytes/8 + b.perByte*bytes + int64(w.BatchPayloads)*(b.empty+usualHeaders))
	b.idleLimit = b.Limit / idleShare
	if w.Limit > 0 {
		if err := w.Check(); err != nil {
			return nil, err
		}
		fixed, frames, _ := w.parts()
		left := w.Limit - fixed - frames
		b.idleLimit = min(b.idleLimit, left/idleShare)
		b.Limit = min(b.Limit, left-left/idleShare)
	}
	if w.Many {
		b.submittedLimit = b.Limit // otherwise the batches of a shard that can't store would hold up those of others
	}
	return b, nil
}

// Error means that the limit of a Worker is too low.
type Error struct {
	Found  string // available and required memory
	Advice string // settings to raise or lower
}

func (e *Error) Error() string { return "ingest: too little memory: " + e.Found + ": " + e.Advice }

// Check returns an *Error if the limit is too low.
func (w *Worker) Check() error {
	fixed, frames, least := w.parts()
	minimum := fixed + frames + least
	if w.Limit == 0 || w.Limit >= minimum {
		return nil
	}
	what, lower := "", "MILLRACE_LANES, "
	if frames > 0 {
		what, lower = fmt.Sprintf(" and %d MiB for frames", ceil(frames)), "MILLRACE_FRAME_BYTES, MILLRACE_FRAME_RECORDS, MILLRACE_LANES, "
	}
	return &Error{
		Found: fmt.Sprintf("%d MiB are left for payloads and results, and these settings need %d MiB, %d MiB of them for what is pulled ahead%s",
			w.Limit/mib, ceil(minimum), ceil(fixed), what),
		Advice: fmt.Sprintf("raise the container's memory limit or MILLRACE_MEMORY_LIMIT by %d MiB, or lower %s"+
			"MILLRACE_BATCH_BYTES, MILLRACE_BATCH_PAYLOADS, MILLRACE_PARTITIONS or MILLRACE_NATS_CONNECTIONS", ceil(3*(minimum-w.Limit)), lower),
	}
}

// Requests bounds the pull requests of one consumer. Their total size bounds the messages that are in transit or wait in the client.
type Requests struct {
	Messages int // per request
	Min      int // byte limit of a request, unless the largest message is larger
	Max      int // the consumer's upper bound for the byte limit (max_request_max_bytes); 0 means no bound
}

const (
	// PendingRequests is the number of pull requests that are pending at the server per consumer. With two requests, the server can already
	// serve the second request while the last messages of the first are in transit.
	PendingRequests = 2

	// RequestMessages is the maximum number of messages per pull request.
	RequestMessages = 4096

	// RequestBytes is the byte limit of a request, unless the largest message is larger. The server disconnects a client as a slow consumer
	// if more than 64 MiB are pending for it. Values of 4 to 8 MiB worked well.
	RequestBytes = 2 * mib

	// SubjectBytes is the space for a message's subject and reply subject. The server counts both against the byte limit.
	SubjectBytes = 64 << 10

	// minMessages is the smallest number of messages per request, unless the consumer allows fewer.
	minMessages = 64

	// messageBytes is a message's memory in the client in addition to its content. It includes the message's channel slot.
	messageBytes = 544

	// pullShare limits prefetched messages to a quarter of the memory.
	pullShare = 4
)

// Bytes returns the byte limit of a request. It is at least the size of the largest message, unless the consumer's bound is lower. The
// server refuses a request that is too small for the next message, so the consumer would stall.
func (r Requests) Bytes(maxPayload int64) int {
	n := max(r.Min, int(maxPayload)+SubjectBytes)
	if r.Max > 0 {
		n = min(n, r.Max)
	}
	return n
}

// memory returns the maximum memory of the messages that a consumer's requests deliver.
func (r Requests) memory(maxPayload int64) int64 {
	return PendingRequests * (int64(r.Bytes(maxPayload)) + int64(r.Messages)*messageBytes)
}

// PullRequests returns the bounds of the worker's requests. They are the bounds that the consumer allows, or smaller bounds that keep the
// prefetched messages of all consumers within a quarter of the limit. The messages may exceed the quarter if the largest message or
// minMessages requires it.
func (w *Worker) PullRequests() Requests {
	r := w.Requests
	if w.Limit == 0 || w.Consumers == 0 {
		return r
	}
	share := int(w.Limit/pullShare) / w.Consumers / PendingRequests
	r.Min = min(r.Min, share/2)
	r.Messages = max(min(r.Messages, (share-r.Bytes(w.MaxPayload))/messageBytes), min(r.Messages, minMessages))
	return r
}
