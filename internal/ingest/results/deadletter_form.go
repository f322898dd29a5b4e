package results

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
)

// form is what of a dead letter the server takes in one message. The payload is whole in each.
type form uint8

const (
	whole   form = iota // with the input's headers and ours
	ownOnly             // with ours alone: together they are more than the server takes
	apart               // without any, and the headers in a message of their own: the payload alone is as much as it takes
)

// deadLetter is a dead letter that is being published.
type deadLetter struct {
	w       *Writer
	d       *inflight.Delivery
	why     Reason
	cause   error
	subject string
	form    form
	payload uint64 // where the stream has the payload, once that is stored apart
}

// payloadTimeout is how long the server may take to store a payload alone.
const payloadTimeout = 10 * time.Second

// publish stores the dead letter in its form.
func (l *deadLetter) publish(ctx context.Context) error {
	if l.form < apart {
		return l.send(ctx, l.form == whole, l.form.omitted(), l.d.Msg.Data())
	}
	return l.publishApart(ctx)
}

// publishApart stores the payload in a message without headers, and behind it the letter without a payload, which
// says where that is. If only the first of them can be stored the payload is there once more when it comes again.
func (l *deadLetter) publishApart(ctx context.Context) error {
	if l.payload == 0 {
		at, err := l.publishPayload(ctx)
		if err != nil {
			return err
		}
		l.payload = at
	}
	err := l.send(ctx, true, apart.omitted(), nil)
	if publisher.Unstorable(err) {
		err = l.send(ctx, false, apart.omitted()+","+ownOnly.omitted(), nil)
	}
	return err
}

// publishPayload stores the payload alone and returns where the stream has it. It has no message id, since that would be a
// header: what is stored twice is there twice.
func (l *deadLetter) publishPayload(ctx context.Context) (at uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	ack, err := l.w.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject, Data: l.d.Msg.Data()})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// send stores one message with the letter's headers, and with those of the input if inputs is set.
func (l *deadLetter) send(ctx context.Context, inputs bool, omitted string, body []byte) error {
	h := DeadLetterHeader(l.d, l.why, l.cause, inputs)
	if omitted != "" {
		h[HeaderOmitted] = []string{omitted}
	}
	if l.payload > 0 {
		h[HeaderPayloadSequence] = []string{strconv.FormatUint(l.payload, 10)}
	}
	message := &nats.Msg{Subject: l.subject, Header: h, Data: body}
	return l.w.again.Publish(ctx, []*nats.Msg{message}, nil)[0].Err
}

// omitted is what the message with the letter's headers goes without, as its header says.
func (f form) omitted() string { return [...]string{"", "headers", "payload"}[f] }

// logOmission says what the letter had to go without.
func (l *deadLetter) logOmission() {
	switch l.form {
	case ownOnly:
		l.w.s.Log.Warn("the input's own headers were left out of a dead letter: with them it is more than the server takes",
			"sequence", l.d.Sequence, "headers", len(l.d.Msg.Headers()))
	case apart:
		l.w.s.Log.Warn("a dead letter is stored in two messages, payload and headers: together they are more than the server takes "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "payload_sequence", l.payload)
	}
}
