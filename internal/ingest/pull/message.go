package pull

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is a message of a consumer. Unlike the client library's it can be acknowledged as often as one likes: an
// acknowledgement may get lost.
type Message struct {
	nc    *nats.Conn
	raw   *nats.Msg
	turn  uint64
	since time.Time
}

// Since is a moment before the message reached this process: no more than what waited before it in the client lies between. It is zero
// where that is not known.
func (m *Message) Since() time.Time { return m.since }

var _ jetstream.Msg = (*Message)(nil)

// Stored is a message as the stream holds it, with the acknowledgements of its first delivery, the consumer's number-th,
// which never came.
func Stored(nc *nats.Conn, stream, consumer string, number uint64, m *jetstream.RawStreamMsg) *Message {
	reply := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", stream, consumer, m.Sequence, number, m.Time.UnixNano())
	return &Message{nc: nc, raw: &nats.Msg{Subject: m.Subject, Reply: reply, Header: m.Header, Data: m.Data}}
}

// Data is the payload. It is the caller's to read, not to change.
func (m *Message) Data() []byte { return m.raw.Data }

// Headers are nil where there are none, and where they cannot be read.
func (m *Message) Headers() nats.Header { return m.raw.Header }

// HeaderBytes is how long the headers were on the wire, whether they can be read or not.
func (m *Message) HeaderBytes() int {
	return max(m.raw.Size()-len(m.raw.Subject)-len(m.raw.Reply)-len(m.raw.Data), 0)
}

// Subject is the subject in the stream.
func (m *Message) Subject() string { return m.raw.Subject }

// Reply is where the server takes acknowledgements.
func (m *Message) Reply() string { return m.raw.Reply }

// Turn tells the turns of this client in a priority group apart: messages have the same one if the server sent them under
// the same pin. It is made of what this client asked for, and nothing that a publisher sends can change it. It is 0 for a
// consumer without such a group, and for a message read from the stream.
func (m *Message) Turn() uint64 { return m.turn }

// Receipt acknowledges a message. It can do so as often as one likes: an acknowledgement may get lost.
type Receipt interface {
	Ack() error
	DoubleAck(ctx context.Context) error
}

// ConfirmTimeout bounds how long the caller of DoubleAck waits for the server.
const ConfirmTimeout = 5 * time.Second

// Receipt returns what acknowledges the message, without its payload and headers.
func (m *Message) Receipt() Receipt {
	return &Message{nc: m.nc, raw: &nats.Msg{Subject: m.raw.Subject, Reply: m.raw.Reply}}
}

// The positions in a reply subject, from its end: $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer
// sequence>.<nanoseconds>.<pending>. With a domain there is more before the stream, and a token behind it all.
const (
	shortReply = 9
	longReply  = 11
)

// Metadata reads where the message is from. It fails with jetstream.ErrNotJSMessage for one that is from no consumer.
func (m *Message) Metadata() (*jetstream.MsgMetadata, error) {
	var array [longReply + 1]string
	tokens := array[:0]
	for token := range strings.SplitSeq(m.raw.Reply, ".") {
		if len(tokens) == len(array) {
			break // what follows is of no use
		}
		tokens = append(tokens, token)
	}
	if len(tokens) != shortReply && len(tokens) < longReply || tokens[0] != "$JS" || tokens[1] != "ACK" {
		return nil, jetstream.ErrNotJSMessage
	}
	meta := &jetstream.MsgMetadata{}
	from := tokens[2:]
	if len(tokens) >= longReply {
		from = tokens[4:] // behind the domain and the account
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

// say sends the server a word about the message.
func (m *Message) say(word string) error { return m.nc.Publish(m.raw.Reply, []byte(word)) }

// Ack acknowledges the message. It does not wait.
func (m *Message) Ack() error { return m.say("+ACK") }

// DoubleAck acknowledges the message and returns when the server has taken that in.
func (m *Message) DoubleAck(ctx context.Context) error {
	_, err := m.nc.RequestWithContext(ctx, m.raw.Reply, []byte("+ACK"))
	return err
}

// InProgress has the server count AckWait from now.
func (m *Message) InProgress() error { return m.say("+WPI") }

// Nak has the message delivered again at once.
func (m *Message) Nak() error { return m.say("-NAK") }

// NakWithDelay has the message delivered again after delay.
func (m *Message) NakWithDelay(delay time.Duration) error {
	if delay <= 0 {
		return m.Nak()
	}
	return m.say(fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// Term has the message not delivered again.
func (m *Message) Term() error { return m.say("+TERM") }

// TermWithReason is Term with a reason for the server's advisory.
func (m *Message) TermWithReason(reason string) error { return m.say("+TERM " + reason) }
