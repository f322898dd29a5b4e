package ingest

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
)

// form is what of a dead letter the server takes in one message. The payload is whole in each.
type form uint8

const (
	whole   form = iota // with the input's headers and ours
	ownOnly             // with ours alone: together they are more than the server takes
	apart               // without any, and the headers in a message of their own: the payload alone is as much as it takes
)

// letter is a dead letter that is being stored.
type letter struct {
	w       *Worker
	d       *inflight.Delivery
	why     Reason
	cause   error
	subject string
	form    form
	payload uint64 // where the stream has the payload, once that is stored apart
}

// payloadTimeout is how long the server may take to store a payload alone.
const payloadTimeout = 10 * time.Second

// store stores the letter in its form.
func (l *letter) store(ctx context.Context) error {
	if l.form < apart {
		return l.send(ctx, l.form == whole, l.form.omitted(), l.d.Msg.Data())
	}
	return l.storeApart(ctx)
}

// storeApart stores the payload in a message without headers, and behind it the letter without a payload, which
// says where that is. If only the first of them can be stored the payload is there once more when it comes again.
func (l *letter) storeApart(ctx context.Context) error {
	if l.payload == 0 {
		at, err := l.storePayload(ctx)
		if err != nil {
			return err
		}
		l.payload = at
	}
	err := l.send(ctx, true, apart.omitted(), nil)
	if store.Unstorable(err) {
		err = l.send(ctx, false, apart.omitted()+","+ownOnly.omitted(), nil)
	}
	return err
}

// storePayload stores the payload alone and returns where the stream has it. It has no message id, since that would be a
// header: what is stored twice is there twice.
func (l *letter) storePayload(ctx context.Context) (at uint64, err error) {
	js, err := jetstream.New(l.w.nc)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: l.subject, Data: l.d.Msg.Data()})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// send stores one message with the letter's headers, and with those of the input if inputs is set.
func (l *letter) send(ctx context.Context, inputs bool, omitted string, body []byte) error {
	h := deadLetterHeader(l.d, l.why, l.cause, inputs)
	if omitted != "" {
		h[HeaderOmitted] = []string{omitted}
	}
	if l.payload > 0 {
		h[HeaderPayloadSequence] = []string{strconv.FormatUint(l.payload, 10)}
	}
	message := &nats.Msg{Subject: l.subject, Header: h, Data: body}
	return l.w.publisher.singles.Put(ctx, []*nats.Msg{message}, nil)[0].Err
}

// omitted is what the message with the letter's headers goes without, as its header says.
func (f form) omitted() string { return [...]string{"", "headers", "payload"}[f] }

// logOmission says what the letter had to go without.
func (l *letter) logOmission() {
	switch l.form {
	case ownOnly:
		l.w.log.Warn("the input's own headers were left out of a dead letter: with them it is more than the server takes",
			"sequence", l.d.Sequence, "headers", len(l.d.Msg.Headers()))
	case apart:
		l.w.log.Warn("a dead letter is stored in two messages, payload and headers: together they are more than the server takes "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "payload_sequence", l.payload)
	}
}
