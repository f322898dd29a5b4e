package pull

import (
	"errors"
	"fmt"
	"sync/atomic"
)

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
