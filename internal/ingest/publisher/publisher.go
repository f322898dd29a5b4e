// Package publisher publishes messages into JetStream streams and says of each what became of it.
//
// There are two ways. Windowed publishes every message by itself and waits for an acknowledgement of each: any
// server can do it, and every message has an answer of its own. Batched publishes many as one fast batch with one
// acknowledgement for all: that is several times faster for small messages, and needs a server and a stream that
// allow it. Open asks them and chooses. Whatever goes wrong with a batch, its messages go the other way under the
// same ids, so the stream keeps one of each and every one has its answer.
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

// Publisher stores messages in streams and says what became of each. It may be used by several goroutines at once.
type Publisher interface {
	// Publish stores msgs, in their order while nothing goes wrong, and returns when each has its answer or ctx has
	// ended. answers[i] is about msgs[i]; they are appended to dst and returned. Every message must carry a
	// Nats-Msg-Id, since one may be sent twice. The messages stay the caller's and are not changed; after a Put
	// whose ctx has ended, what they hold may be read for as long as an acknowledgement may take. Nothing is sent after the deadline
	// of ctx, by the clock and not by a timer: the process may have been stopped meanwhile.
	Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) (answers []Answer)
}

// Answer is what became of one message.
type Answer struct {
	Duplicate bool  // the stream had a message of the same id already, as far as the server said so
	Err       error // nil: the server has stored it; otherwise it is not known whether it did
}

// Timeout is how long the server may take to answer before what was sent counts as lost, unless a Store is made
// with another.
const Timeout = 10 * time.Second

// JetStream's codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// MaxSubject is how long the subject of a message may be, in bytes. A client that sends an operation of more than 4096
// bytes loses its connection for good (that is the default of max_control_line; a server tells nobody its own), and an
// input's subject may have filled its line, with neither a reply subject nor the longer prefix that a result's has.
const MaxSubject = 4096 - 128

// errLongSubject is why a message was not sent.
var errLongSubject = fmt.Errorf("its subject is longer than %d bytes", MaxSubject)

// late says whether the deadline of ctx has passed.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// fits says whether a message may be sent.
func fits(m *nats.Msg) bool { return len(m.Subject) <= MaxSubject }

// Unstorable says that a message itself, not the server's state, keeps it from being stored.
func Unstorable(err error) bool {
	for _, own := range []error{errLongSubject, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported} {
		if errors.Is(err, own) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}
