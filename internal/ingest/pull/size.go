package pull

import (
	"errors"
	"fmt"
	"sync/atomic"
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

// Server provides the max_payload of a NATS server. *nats.Conn implements it.
type Server interface {
	MaxPayload() int64 // in bytes
}

// Limit is the byte limit of a consumer's requests. It must be at least the size of the largest message. Otherwise the consumer
// stalls, because the server refuses any request that is too small for the next message.
//
// The server's max_payload can be raised while a worker runs. nats-server 2.15 then sends no INFO to its clients, so the client
// library gets the new value only when it reconnects. Therefore the limit also grows when the server refuses a request.
//
// A Limit is safe for concurrent use. Several pulls of one consumer may share it.
type Limit struct {
	nc    Server
	min   int          // lower bound in bytes, regardless of max_payload
	max   int          // the consumer's own bound (max_request_max_bytes); 0 means no bound
	grown atomic.Int64 // limit after the latest refusal, in bytes; 0 before the first
}

const (
	// subjectBytes is the space for a message's subject and reply subject. The server counts both against the limit.
	subjectBytes = 64 << 10

	// largest bounds the limit after refusals, unless max_payload itself is larger. The server disconnects a client
	// as a slow consumer if more than 64 MiB are pending for it.
	largest = 64 << 20
)

// ErrMessageTooLarge means that the next message exceeds the largest byte limit that a request may have.
var ErrMessageTooLarge = errors.New("the consumer's next message is larger than one request may ask for")

// NewLimit returns the limit of requests over nc. It is the larger of minimum and the size of the largest message, in bytes. most
// bounds the limit, unless maximum is 0.
func NewLimit(nc Server, minimum, maximum int) *Limit {
	return &Limit{nc: nc, min: minimum, max: maximum}
}

// Bytes returns the byte limit for the next request.
func (l *Limit) Bytes() int {
	n := max(l.min, int(l.nc.MaxPayload())+subjectBytes, int(l.grown.Load()))
	if l.max > 0 {
		n = min(n, l.max)
	}
	return n
}

// refused doubles the limit, up to its bound, after the server refused a request of asked bytes as too small. It returns
// ErrMessageTooLarge if the limit has reached its bound.
func (l *Limit) refused(asked int) error {
	now := l.Bytes()
	if asked < now {
		return nil // the next request is larger already
	}
	bound := max(largest, int(l.nc.MaxPayload())) + subjectBytes
	if l.max > 0 {
		bound = l.max
	}
	if now >= bound {
		return fmt.Errorf("%w: %d bytes (raise or clear the consumer's max_request_max_bytes)", ErrMessageTooLarge, now)
	}
	l.grown.Store(int64(min(2*now, bound)))
	return nil
}
