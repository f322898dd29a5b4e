// Package store stores messages in JetStream streams.
//
// A Publisher reports the outcome of each message. Windowed publishes every message separately and waits for each acknowledgement,
// which any server supports. Following publishes many messages as one fast batch with one acknowledgement while the stream allows
// that. Fast batches are several times faster for small messages. If a batch fails, its messages are published separately under the
// same ids, and the stream keeps one copy of each.
//
// A Chain stores the results and dead letters of exclusive delivery exactly once, with commit markers. It accesses the server
// through Markers. Stream implements Markers, and the model test of package lease simulates it. adr/0046 gives the reasons for the
// design.
//
// Start reading at Publisher and Follow for messages, and at OpenChains and Chain.Commit for batches with markers.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publisher stores messages in streams and reports the outcome of each. It is safe for concurrent use.
type Publisher interface {
	// Publish stores msgs, in their order unless a publish fails. It returns when each message has an answer or ctx has ended. It
	// appends one answer per message to dst, in the order of msgs. Every message must have a Nats-Msg-Id, because it may be sent
	// twice. Publish doesn't modify the messages, and the caller still owns them. After the end of ctx, the client may read the
	// messages until the acknowledgement timeout. Publish sends nothing after the deadline of ctx, even if ctx's timer is late
	// after a stop of the process.
	Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) (answers []Answer)
}

// Answer is the outcome of one message.
type Answer struct {
	Duplicate bool  // whether the server reported that the stream already had the message's id
	Err       error // nil if the message is stored; otherwise it may or may not be stored
}

// Timeout is the default time limit for the server's answer to a message.
const Timeout = 10 * time.Second

// JetStream's error codes for a message that no retry can store (nats-server's errors.json).
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097 // header larger than 64 KiB
)

// MaxSubject is the maximum length of a published message's subject, in bytes. A client permanently loses its connection if it
// sends a protocol line longer than the server's max_control_line. A server doesn't report this limit, whose default is 4096. An
// input's subject may exceed MaxSubject, because the input's line has no reply subject and a shorter prefix.
const MaxSubject = 4096 - 128

var errLongSubject = fmt.Errorf("its subject is longer than %d bytes", MaxSubject)

// late reports whether the deadline of ctx has passed, even if ctx's timer is late.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func isTooLong(m *nats.Msg) bool { return len(m.Subject) > MaxSubject }

// Unstorable reports whether err means that no retry can store the message.
func Unstorable(err error) bool {
	for _, own := range []error{errLongSubject, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported} {
		if errors.Is(err, own) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == codeMessageTooLarge || api.ErrorCode == codeHeaderTooLarge)
}

// MapSubject replaces the first token of subject with prefix. For example, with prefix "results",
// "ingest.web.en" becomes "results.web.en", and "ingest" becomes "results".
func MapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

const (
	// lateMax is the maximum sum of two delays. One is the delay of a published result on its way to the stream. The
	// other is the delay of a delivered input on its way to this worker.
	lateMax = 20 * time.Second

	// latePart limits lateMax to half of a short duplicate window.
	latePart = 2

	// SafeWindow is the shortest duplicate window for which PublishFor subtracts all of lateMax.
	SafeWindow = latePart * lateMax
)

// PublishFor returns the maximum time from an input's clearance to the publish of its result, given the stream's
// duplicate window. It is the window minus 20 s, or half of the window if that is longer. It is at least a second,
// because otherwise nothing could be published.
func PublishFor(window time.Duration) time.Duration {
	return max(window-min(lateMax, window/latePart), time.Second)
}
