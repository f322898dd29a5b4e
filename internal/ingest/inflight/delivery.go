package inflight

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pull"
)

// Receipt is what it takes to acknowledge a delivery.
type Receipt interface {
	Ack() error
	DoubleAck(ctx context.Context) error
}

// Message is a message of a consumer as package pull returns it, once newDelivery has read where it is from.
type Message interface {
	Data() []byte
	Headers() nats.Header
	Subject() string
	Reply() string
	Receipt() *pull.Message

	Receipt
	InProgress() error
	NakWithDelay(delay time.Duration) error
	TermWithReason(reason string) error
}

// Delivery is one input message in hand.
type Delivery struct {
	Msg              Message
	Stream           string
	Subject          string    // as it was published
	Sequence         uint64    // in the stream
	ConsumerSequence uint64    // of the delivery, at the consumer
	NumDelivered     int       // 1 for the first
	Turn             uint64    // at the consumer; see pull.Message
	Level            int       // how suspect it is; see levels
	HeaderBytes      int       // bytes of its headers
	Pending          uint64    // messages behind it
	Stored           time.Time // when the stream stored it
	Received         time.Time
	Cost             int64 // bytes that it holds of the budget; see costs

	First   bool      // nobody has had it before
	Cleared time.Time // it is known that no result of it was stored before then; zero: nothing is known
}

// NewDelivery reads where msg comes from. It fails for a message that is not from JetStream.
func NewDelivery(msg *pull.Message, now time.Time) (Delivery, error) {
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

// NakDelay is how long a payload that could not be processed stays away: a second, doubled with every
// delivery, a minute at most. The consumer's BackOff does not apply to naks.
func (d *Delivery) NakDelay() time.Duration {
	return min(time.Second<<min(d.NumDelivered-1, 6), MaxNakDelay)
}

// MaxNakDelay is the longest delay with which a worker gives a payload back.
const MaxNakDelay = time.Minute

// LossDelay is how long a payload stays away that was on a device as it was lost: time for the process to end, so that
// its successor gets it.
const LossDelay = time.Second
