package pull

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// Message is a message of a consumer. Unlike the client library's message, it can be acknowledged again if an acknowledgement is
// lost.
type Message struct {
	nc    *nats.Conn
	raw   *nats.Msg
	turn  uint64
	since time.Time
}

// Since returns a lower bound of the message's arrival time in this process. The bound is earlier by at most the time that earlier
// messages waited in the client. It is zero if the arrival time is unknown.
func (m *Message) Since() time.Time { return m.since }

// Stored returns a Message for m, which was read from the stream because its delivery never arrived. The Message acknowledges that
// delivery. number is the delivery's consumer sequence.
func Stored(nc *nats.Conn, stream, consumer string, number uint64, m *jetstream.RawStreamMsg) *Message {
	reply := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", stream, consumer, m.Sequence, number, m.Time.UnixNano())
	return &Message{nc: nc, raw: &nats.Msg{Subject: m.Subject, Reply: reply, Header: m.Header, Data: m.Data}}
}

var _ jetstream.Msg = (*Message)(nil)

// Data returns the payload. The caller must not modify it.
func (m *Message) Data() []byte { return m.raw.Data }

// Headers returns the headers, or nil if there are none. It returns jsapi.Unreadable if they can't be parsed. The caller must not
// modify them.
func (m *Message) Headers() nats.Header {
	if m.raw.Header == nil && m.HeaderBytes() > 0 {
		return jsapi.Unreadable
	}
	return m.raw.Header
}

// HeaderBytes returns the size of the headers on the wire in bytes, even if they can't be parsed.
func (m *Message) HeaderBytes() int {
	return max(m.raw.Size()-len(m.raw.Subject)-len(m.raw.Reply)-len(m.raw.Data), 0)
}

// IsDeleteMarker reports whether a message is a delete marker. The server stores a delete marker when it removes a subject's last
// message from a stream with subject_delete_marker_ttl. Publishers can set the same header, so a message with a body isn't a delete
// marker.
func IsDeleteMarker(h nats.Header, body []byte) bool {
	const reason = "Nats-Marker-Reason"
	_, given := h[reason]
	return given && len(body) == 0
}

// Subject returns the subject in the stream.
func (m *Message) Subject() string { return m.raw.Subject }

// Reply returns the subject for acknowledgements.
func (m *Message) Reply() string { return m.raw.Reply }

// Turn returns the number of this client's turn in a priority group. A turn lasts as long as one pin of this client. Messages have
// the same turn if the server sent them under the same pin. A publisher can't influence the number, because it depends only on
// this client's requests. It is 0 for a consumer without a priority group, and for a message read from the stream.
func (m *Message) Turn() uint64 { return m.turn }

// AckToken acknowledges a message without holding its content. It may be used repeatedly.
type AckToken interface {
	Ack() error
	DoubleAck(ctx context.Context) error
}

// ConfirmTimeout is the time limit that callers of DoubleAck use for the server's confirmation.
const ConfirmTimeout = 5 * time.Second

// AckToken returns an AckToken for the message.
func (m *Message) AckToken() AckToken {
	return &Message{nc: m.nc, raw: &nats.Msg{Subject: m.raw.Subject, Reply: m.raw.Reply}}
}

// The numbers of tokens in a reply subject. The short form is $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer
// sequence>.<nanoseconds>.<pending>. The long form also has the domain and the account before the stream, and may have more tokens
// at the end.
const (
	shortReply = 9
	longReply  = 11
)

// Metadata returns the message's stream, consumer, sequences and time. It fails with jetstream.ErrNotJSMessage if the message
// doesn't come from a consumer.
func (m *Message) Metadata() (*jetstream.MsgMetadata, error) {
	var array [longReply + 1]string
	tokens := array[:0]
	for token := range strings.SplitSeq(m.raw.Reply, ".") {
		if len(tokens) == len(array) {
			break // the remaining tokens aren't needed
		}
		tokens = append(tokens, token)
	}
	if len(tokens) != shortReply && len(tokens) < longReply || tokens[0] != "$JS" || tokens[1] != "ACK" {
		return nil, jetstream.ErrNotJSMessage
	}
	meta := &jetstream.MsgMetadata{}
	from := tokens[2:]
	if len(tokens) >= longReply {
		from = tokens[4:]
		if tokens[2] != "_" {
			meta.Domain = tokens[2]
		}
	}
	meta.Stream, meta.Consumer = from[0], from[1]
	var numbers [5]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(from[2+i], 10, 64)
		if err != nil {
			return nil, jetstream.ErrNotJSMessage
		}
		numbers[i] = n
	}
	meta.NumDelivered, meta.NumPending = numbers[0], numbers[4]
	meta.Sequence = jetstream.SequencePair{Stream: numbers[1], Consumer: numbers[2]}
	meta.Timestamp = time.Unix(0, int64(numbers[3]))
	return meta, nil
}

// say publishes word to the message's reply subject.
func (m *Message) say(word string) error { return m.nc.Publish(m.raw.Reply, []byte(word)) }

// Ack acknowledges the message without waiting for the server's confirmation.
func (m *Message) Ack() error { return m.say("+ACK") }

// DoubleAck acknowledges the message and waits until the server confirms it.
func (m *Message) DoubleAck(ctx context.Context) error {
	_, err := m.nc.RequestWithContext(ctx, m.raw.Reply, []byte("+ACK"))
	return err
}

// InProgress requests that the server restarts AckWait for the message.
func (m *Message) InProgress() error { return m.say("+WPI") }

// Nak requests an immediate redelivery of the message.
func (m *Message) Nak() error { return m.say("-NAK") }

// NakWithDelay requests a redelivery of the message after delay.
func (m *Message) NakWithDelay(delay time.Duration) error {
	if delay <= 0 {
		return m.Nak()
	}
	return m.say(fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// Term requests that the server doesn't deliver the message again.
func (m *Message) Term() error { return m.say("+TERM") }

// TermWithReason is like Term, with a reason for the server's advisory.
func (m *Message) TermWithReason(reason string) error { return m.say("+TERM " + reason) }

// Codes, headers and descriptions of the server's status messages. A code is in the first line of a header.
const (
	wordBad        = "400" // the request is invalid, or not allowed for the consumer
	wordNone       = "404" // no messages for a request that doesn't wait
	wordExpired    = "408" // the request has expired
	wordConflict   = "409" // the request has ended; the description has the reason
	wordRequired   = "412"
	wordPinned     = "423" // another client is pinned
	wordNobody     = "503" // no server responds for the consumer
	pendingHeader  = "Nats-Pending-Messages"
	bytesHeader    = "Nats-Pending-Bytes"
	conflictGone   = "consumer deleted"
	conflictDone   = "batch completed" // the server has sent all requested messages, or will send them
	conflictPush   = "consumer is push based"
	conflictBounds = "exceeded maxrequest"           // the consumer's own limits for a request
	conflictSize   = "message size exceeds maxbytes" // the request is too small for the next message
)

// fatal returns an error if why, the description of a conflict, means that every further request would fail.
func fatal(why string) error {
	switch low := strings.ToLower(why); {
	case strings.Contains(low, conflictGone):
		return ErrGone
	case strings.Contains(low, conflictBounds), strings.Contains(low, conflictPush):
		return fmt.Errorf("the consumer refuses the pull: %s", why)
	}
	return nil
}

// unused returns the number of messages or bytes that an ended request did not deliver, from the given header of raw. It returns 0
// without a valid header.
func unused(raw *nats.Msg, header string) int {
	n, err := strconv.Atoi(raw.Header.Get(header))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// Errors of Next and Fetch, in addition to the context's errors and nats.ErrConnectionClosed. The pull continues after ErrIdle.
var (
	// ErrSilent means that the server has sent nothing for more than two heartbeats, although a request is pending.
	ErrSilent = errors.New("the server is silent: no heartbeat for the pull")

	// ErrEnded means that the pull was drained or stopped, and that no messages are left.
	ErrEnded = errors.New("the pull has ended")

	// ErrGone means that the consumer was deleted.
	ErrGone = errors.New("the consumer was deleted")

	// ErrIdle means that no message has arrived for the duration Request.Idle.
	ErrIdle = errors.New("no message has arrived for a while")
)
