package results

import (
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
)

// form determines how a dead letter is divided into messages. Each form includes the whole payload.
type form uint8

const (
	whole   form = iota // one message with the input's headers and ours
	ownOnly             // one message with our headers only, if the server does not accept both
	apart               // one message with the payload and one with the headers
)

// deadLetter is a dead letter that is being published.
type deadLetter struct {
	w       *Writer
	d       *inflight.Delivery
	why     Reason
	cause   error
	subject string
	id      string // the message's id
	body    []byte // the payload that is given up
	record  int    // index of the record in its frame, or noRecord
	form    form
	payload uint64 // sequence of the message with the payload, if that is stored separately

	store func(ctx context.Context, m *nats.Msg) error // stores a message of the dead letter; nil: see send
}

// noRecord marks the dead letter of a whole message.
const noRecord = -1

// payloadTimeout bounds how long the server may take to store the message with only a payload.
const payloadTimeout = 10 * time.Second

// publishAlone publishes the dead letter in its form, or in the next one that the server accepts.
func (l *deadLetter) publishAlone(ctx context.Context) (err error) {
	for {
		if err = l.publish(ctx); !publisher.Unstorable(err) || l.form == apart {
			return err
		}
		l.form++
	}
}

// publish publishes the dead letter in its form.
func (l *deadLetter) publish(ctx context.Context) error {
	if l.form < apart {
		return l.send(ctx, l.form == whole, l.form.omitted(), l.body)
	}
	return l.publishApart(ctx)
}

// publishApart publishes the payload in a message without headers, and then the headers in a message without a payload. The
// second message names the first one's sequence. If only the first can be stored, the payload is stored a second time when the
// input is redelivered.
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

// publishPayload publishes the payload alone and returns its sequence. The message has no id, since that would be a header.
func (l *deadLetter) publishPayload(ctx context.Context) (at uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	ack, err := l.w.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject, Data: l.body})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// send publishes a message of the dead letter.
func (l *deadLetter) send(ctx context.Context, inputs bool, omitted string, body []byte) error {
	m := l.message(inputs, omitted, body)
	if l.store != nil {
		return l.store(ctx, m)
	}
	return l.w.again.Publish(ctx, []*nats.Msg{m}, nil)[0].Err
}

// message returns a message with the dead letter's headers. It adds the input's headers if inputs is set.
func (l *deadLetter) message(inputs bool, omitted string, body []byte) *nats.Msg {
	h := DeadLetterHeader(l.d, l.why, l.cause, inputs)
	h[jetstream.MsgIDHeader] = []string{l.id}
	if l.record != noRecord {
		h[HeaderRecord] = []string{strconv.Itoa(l.record)}
		maps.DeleteFunc(h, func(key string, _ []string) bool { return describesBody(key) }) // those of the whole message
	}
	if omitted != "" {
		h[HeaderOmitted] = []string{omitted}
	}
	if l.payload > 0 {
		h[HeaderPayloadSequence] = []string{strconv.FormatUint(l.payload, 10)}
	}
	return &nats.Msg{Subject: l.subject, Header: h, Data: body}
}

// omitted returns the value of HeaderOmitted.
func (f form) omitted() string { return [...]string{"", "headers", "payload"}[f] }

// logOmission logs what the dead letter omits.
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
