// Package publisher publishes messages into JetStream streams and reports the outcome of each.
//
// There are two implementations. Windowed publishes every message separately and waits for each acknowledgement. Any server
// supports this, and every message has its own answer. Batched publishes many messages as one fast batch with one acknowledgement.
// Batches are several times faster for small messages, but the server and the stream must support them. Open queries the server and
// the stream, and chooses. If a batch fails, its messages are published separately under the same ids. So the stream keeps one copy
// of each message, and every message has an answer.
//
// Package results stores results and dead letters with this package. Package topology queries the capability of a stream. Start
// reading at Publisher, then Open.
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
	// Publish stores msgs, in their order unless a publish fails. It returns when each message has an answer or ctx has ended. It
	// appends one answer per message to dst, in the order of msgs. Every message must have a Nats-Msg-Id, because it may be sent
	// twice. The caller still owns the messages, which Publish doesn't modify. After the end of ctx, the client may read the
	// messages until the acknowledgement timeout. Publish sends nothing after the deadline of ctx. It compares the clock with the
	// deadline, because timers may be late after a stop of the process.
	Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) (answers []Answer)
}

// Answer is the outcome of one message.
type Answer struct {
	Duplicate bool  // the stream already had a message with the same id, if the server reported it
	Err       error // nil if the server has stored the message; otherwise the message may or may not be stored
}

// Timeout is the default time limit for the server's answer to a message.
const Timeout = 10 * time.Second

// JetStream's error codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// MaxSubject is the maximum length of a message's subject, in bytes. A client that sends an operation line of more than 4096 bytes
// permanently loses its connection. That number is the default of max_control_line, which a server doesn't report. An input's
// subject may exceed MaxSubject, because the input's line has no reply subject and a shorter prefix.
const MaxSubject = 4096 - 128

var errLongSubject = fmt.Errorf("its subject is longer than %d bytes", MaxSubject)

// late reports whether the deadline of ctx has passed.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func fits(m *nats.Msg) bool { return len(m.Subject) <= MaxSubject }

// Unstorable reports whether err means that the message can never be stored, independently of the server's state.
func Unstorable(err error) bool {
	for _, own := range []error{errLongSubject, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported} {
		if errors.Is(err, own) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}
