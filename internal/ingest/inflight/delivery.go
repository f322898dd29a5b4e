// Package inflight tracks each delivery of a worker from the pull to its acknowledgement.
//
// A Delivery is one delivery of an input message. Deliveries wait in a Queue, and a Batcher packs them into batches of
// a pipeline. A Batch keeps its deliveries until all of them are settled. A Frame is a message of many records, which
// an Unpacker splits. A Pool bounds the number and memory of deliveries, and keeps them alive at the server. A
// Window decides when a partly filled batch is submitted.
//
// Both delivery modes use this package. Package results stores results, and the modes acknowledge inputs. Start reading
// at Delivery, then Batch, then Pool.
package inflight

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
)

// Message contains the methods of a received message that Delivery uses. *pull.Message implements it.
type Message interface {
	Data() []byte
	Headers() nats.Header
	Subject() string
	Reply() string
	AckToken() pull.AckToken // for an acknowledgement after the payload is released

	Ack() error
	DoubleAck(ctx context.Context) error
	InProgress() error
	NakWithDelay(delay time.Duration) error
	TermWithReason(reason string) error
}

// Delivery is one delivery of an input message.
type Delivery struct {
	Msg              Message
	Stream           string
	Subject          string    // subject of the published message
	Sequence         uint64    // stream sequence
	ConsumerSequence uint64    // number of the delivery at the consumer
	NumDelivered     int       // 1 for the first
	Turn             uint64    // turn in which the message arrived; see pull.Message.Turn
	Level            int       // quarantine level; see quarantine.Levels
	HeaderBytes      int       // size of the headers in bytes
	Pending          uint64    // messages that the consumer has not delivered yet
	Stored           time.Time // time when the stream stored the message
	Received         time.Time
	Cost             int64    // bytes of memory that the delivery holds; see Pool.Hold
	Frame            *Frame   // the message's records; nil if the message is a single uncompressed record
	Parts            []string // ids of the result's parts that an earlier lease has stored

	// Done reports whether the message has a result or a dead letter already, and is computed again only for the state of a stateful
	// operator. Nothing is stored for it but entries of the state's log.
	Done bool

	First   bool      // whether the message was never delivered before
	Cleared time.Time // time before which no result of the input was stored; zero if unknown
}

// Incoming is a message that NewDelivery accepts. *pull.Message implements it.
type Incoming interface {
	Message

	HeaderBytes() int // bytes of the headers on the wire
	Turn() uint64     // see pull.Message
	Since() time.Time // a time before the message reached the process; zero if unknown
	Metadata() (*jetstream.MsgMetadata, error)
}

// NewDelivery returns a delivery of msg, received at now. It returns an error for a message that is not from JetStream.
func NewDelivery(msg Incoming, now time.Time) (Delivery, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Delivery{}, fmt.Errorf("message on %q has no JetStream metadata: %w", msg.Subject(), err)
	}
	d := Delivery{
		First: meta.NumDelivered == 1, HeaderBytes: msg.HeaderBytes(), Turn: msg.Turn(),
		Msg: msg, Stream: meta.Stream, Subject: msg.Subject(), Sequence: meta.Sequence.Stream, ConsumerSequence: meta.Sequence.Consumer, NumDelivered: int(meta.NumDelivered),
		Pending: meta.NumPending, Stored: meta.Timestamp, Received: now,
	}
	if d.First {
		d.Cleared = msg.Since()
	}
	return d, nil
}

// payload describes the message to observers.
func (d *Delivery) payload() Payload {
	return Payload{Stream: d.Stream, Sequence: d.Sequence, Header: d.Msg.Headers()}
}

// NakDelay returns the delay before the redelivery of a payload that could not be processed. It starts at one second
// and doubles with every delivery, up to MaxNakDelay. The consumer's BackOff does not apply to naks.
func (d *Delivery) NakDelay() time.Duration {
	return min(time.Second<<min(d.NumDelivered-1, 6), MaxNakDelay)
}

// MaxNakDelay is the longest NakDelay.
const MaxNakDelay = time.Minute

// LossDelay is the delay before the redelivery of a payload that was on a lost device. It gives the process time to
// end, so that its successor gets the payload.
const LossDelay = time.Second
