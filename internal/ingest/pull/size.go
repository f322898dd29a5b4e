package pull

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/memory"
)

const (
	// heartbeat is the default interval between heartbeats of the server.
	heartbeat = 2 * time.Second

	// BeatsPerRequest is the duration of a request, in heartbeats.
	BeatsPerRequest = 3
)

// Size bounds a request's messages, bytes and heartbeats.
type Size struct {
	memory.Requests
	Beat time.Duration // interval between heartbeats
}

// NewSize returns the fastest size within the consumer's own bounds. The server refuses a request that exceeds these bounds.
func NewSize(c jetstream.ConsumerConfig) Size {
	s := Size{memory.Requests{Messages: memory.RequestMessages, Min: memory.RequestBytes, Max: c.MaxRequestMaxBytes}, heartbeat}
	if c.MaxRequestBatch > 0 {
		s.Messages = min(s.Messages, c.MaxRequestBatch)
	}
	if c.MaxRequestExpires > 0 {
		s.Beat = min(s.Beat, c.MaxRequestExpires/BeatsPerRequest)
	}
	return s
}

// Limit returns the byte limit of requests over nc.
func (s Size) Limit(nc *nats.Conn) *Limit { return &Limit{nc: nc, size: s.Requests} }

// Limit is the byte limit of a consumer's requests. It follows the server's max_payload.
//
// The server's max_payload can be raised while a worker runs. nats-server 2.15 then sends no INFO to its clients, so the client
// library gets the new value only when it reconnects. Therefore the limit also grows when the server refuses a request.
//
// A Limit is safe for concurrent use. Several pulls of one consumer may share it.
type Limit struct {
	nc    *nats.Conn
	size  memory.Requests
	grown atomic.Int64 // limit after the latest refusal, in bytes; 0 before the first
}

// largest bounds the limit after refusals, unless max_payload itself is larger. The server disconnects a client as a slow consumer
// if more than 64 MiB are pending for it.
const largest = 64 << 20

// ErrMessageTooLarge means that the next message exceeds the largest byte limit that a request may have.
var ErrMessageTooLarge = errors.New("the consumer's next message is larger than one request may ask for")

// Bytes returns the byte limit for the next request.
func (l *Limit) Bytes() int { return max(l.size.Bytes(l.nc.MaxPayload()), int(l.grown.Load())) }

// refused doubles the limit, up to its bound, after the server refused a request of asked bytes as too small. It returns
// ErrMessageTooLarge if the limit has reached its bound.
func (l *Limit) refused(asked int) error {
	now := l.Bytes()
	if asked < now {
		return nil // the next request is larger already
	}
	bound := max(largest, int(l.nc.MaxPayload())) + memory.SubjectBytes
	if l.size.Max > 0 {
		bound = l.size.Max
	}
	if now >= bound {
		return fmt.Errorf("%w: %d bytes (raise or clear the consumer's max_request_max_bytes)", ErrMessageTooLarge, now)
	}
	l.grown.Store(int64(min(2*now, bound)))
	return nil
}
