package pull

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// Limit is how many bytes one request of a consumer asks for. It must be at least the largest message, or the consumer
// stalls: the server refuses every request that its next message doesn't fit.
//
// The server's max_payload can be raised while a worker runs, and nats-server 2.15 sends its clients no INFO for that: the
// client library learns it only when it connects again. So the limit also grows by what the server refuses.
//
// A Limit is safe for concurrent use. Several pulls of one consumer may share it.
type Limit struct {
	nc    *nats.Conn
	least int          // bytes, however small max_payload is
	most  int          // the consumer's own bound (max_request_max_bytes); 0 for none
	grown atomic.Int64 // bytes that a refusal asked for
}

const (
	// subjectBytes is room for the subjects of a message, which the server counts too.
	subjectBytes = 64 << 10

	// largest bounds what refusals can make a request ask for, unless max_payload itself is larger: the server cuts a client
	// off as a slow consumer that has more than 64 MiB on the way.
	largest = 64 << 20
)

// ErrMessageTooLarge says that the next message fits no request that the consumer allows.
var ErrMessageTooLarge = errors.New("the consumer's next message is larger than one request may ask for")

// NewLimit makes the limit of requests over nc that ask for least bytes, or for the largest message if that is more, but
// never for more than most, where that is not 0.
func NewLimit(nc *nats.Conn, least, most int) *Limit {
	return &Limit{nc: nc, least: least, most: most}
}

// Bytes is what a request is to ask for now.
func (l *Limit) Bytes() int {
	n := max(l.least, int(l.nc.MaxPayload())+subjectBytes, int(l.grown.Load()))
	if l.most > 0 {
		n = min(n, l.most)
	}
	return n
}

// refused notes that the server refused a request of so many bytes, of which nothing was used, because the next message
// does not fit. It fails where no request may ask for more.
func (l *Limit) refused(asked int) error {
	now := l.Bytes()
	if asked < now {
		return nil // the next request asks for more anyway
	}
	bound := max(largest, int(l.nc.MaxPayload())) + subjectBytes
	if l.most > 0 {
		bound = l.most
	}
	if now >= bound {
		return fmt.Errorf("%w: %d bytes (raise or clear the consumer's max_request_max_bytes)", ErrMessageTooLarge, now)
	}
	l.grown.Store(int64(min(2*now, bound)))
	return nil
}
