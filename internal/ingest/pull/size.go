package pull

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/capacity"
)

const (
	// RequestBytes is the byte limit of a request, unless the largest message is larger. The server disconnects a client as a slow
	// consumer if more than 64 MiB are pending for it. Values of 4 to 8 MiB worked well.
	RequestBytes = 2 << 20

	// heartbeat is the default interval between heartbeats of the server.
	heartbeat = 2 * time.Second

	// BeatsPerRequest is the duration of a request, in heartbeats.
	BeatsPerRequest = 3

	// MinMessages is the smallest number of messages per request, unless the consumer allows fewer.
	MinMessages = 64

	// MessageCost is a message's memory in the client in addition to its content, in bytes. It includes the message's channel
	// slot.
	MessageCost = 544
)

// Size bounds a request's messages, bytes and heartbeats.
type Size struct {
	Messages int
	Min      int           // byte limit of a request, unless the largest message is larger
	Max      int           // the consumer's own bound (max_request_max_bytes); 0 means no bound
	Beat     time.Duration // interval between heartbeats
}

// NewSize returns the fastest size within the consumer's own bounds. The server refuses a request that exceeds these bounds.
func NewSize(c jetstream.ConsumerConfig) Size {
	s := Size{Messages: capacity.RequestMessages, Min: RequestBytes, Max: c.MaxRequestMaxBytes, Beat: heartbeat}
	if c.MaxRequestBatch > 0 {
		s.Messages = min(s.Messages, c.MaxRequestBatch)
	}
	if c.MaxRequestExpires > 0 {
		s.Beat = min(s.Beat, c.MaxRequestExpires/BeatsPerRequest)
	}
	return s
}

// Within reduces s so that a pull over nc holds at most share bytes in the client. It exceeds share if the largest message or
// MinMessages requires it, because otherwise the consumer would stall.
func (s Size) Within(share int, nc Server) Size {
	share /= outstanding
	s.Min = min(s.Min, share/2)
	s.Messages = max(min(s.Messages, (share-s.Limit(nc).Bytes())/MessageCost), min(s.Messages, MinMessages))
	return s
}

// Limit returns the byte limit of requests over nc. It follows the server's max_payload.
func (s Size) Limit(nc Server) *Limit { return NewLimit(nc, s.Min, s.Max) }

// Memory returns the maximum number of bytes that a pull over nc holds in the client.
func (s Size) Memory(nc Server) int64 {
	return outstanding * (int64(s.Limit(nc).Bytes()) + int64(s.Messages)*MessageCost)
}
