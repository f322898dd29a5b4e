// Package publisher publishes messages into JetStream streams and reports the outcome of each.
//
// There are two implementations. Windowed publishes every message separately and waits for an acknowledgement of
// each. Any server supports this, and every message has its own answer. Batched publishes many messages as one fast
// batch with one acknowledgement. That is several times faster for small messages, but needs a server and a stream
// that allow it. Open queries both and chooses. If a batch fails, its messages are published separately under the
// same ids, so the stream keeps one of each and every message has its answer.
//
// Package results stores results and dead letters with it, and package topology asks with it how a stream takes messages. Start reading at
// Publisher, then Open.
package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publisher stores messages in streams and reports the outcome of each. It is safe for concurrent use.
type Publisher interface {
	// Publish stores msgs, in their order unless something fails. It returns when each has an answer or ctx has
	// ended. It appends the answers to dst: answers[i] is for msgs[i]. Every message must carry a Nats-Msg-Id,
	// because it may be sent twice. The caller still owns the messages, which aren't changed. If ctx has ended, they
	// may be read for as long as an acknowledgement may take. Nothing is sent after the deadline of ctx. The clock
	// decides this, not a timer, because the process may have been stopped.
	Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) (answers []Answer)
}

// Answer is the outcome of one message.
type Answer struct {
	Duplicate bool  // the stream already had a message with the same id, if the server reported it
	Err       error // nil: the server has stored it; otherwise it may or may not be stored
}

// Timeout is the default for how long the server may take to answer before a message counts as lost.
const Timeout = 10 * time.Second

// JetStream's error codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// MaxSubject is the maximum length of a message's subject, in bytes. A client that sends an operation of more than
// 4096 bytes (the default of max_control_line, which a server doesn't report) loses its connection for good. The
// subject of an input may have filled its line, without a reply subject and with a shorter prefix than its result
// has.
const MaxSubject = 4096 - 128

// errLongSubject is the error for a message whose subject is too long to send.
var errLongSubject = fmt.Errorf("its subject is longer than %d bytes", MaxSubject)

// late reports whether the deadline of ctx has passed.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// fits reports whether m may be sent.
func fits(m *nats.Msg) bool { return len(m.Subject) <= MaxSubject }

// Unstorable reports whether err means that the message itself, not the server's state, prevents it from being
// stored.
func Unstorable(err error) bool {
	for _, own := range []error{errLongSubject, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported} {
		if errors.Is(err, own) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}
