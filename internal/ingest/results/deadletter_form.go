package results

import (
	"context"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/publisher"
)

// form determines how a dead letter is divided into messages. The worker uses the first form that the server accepts.
type form uint8

const (
	whole   form = iota // one message with the input's headers and ours
	ownOnly             // one message with our headers only
	apart               // one message with the payload and one with the headers
	within              // for a record: one message with the headers and one with the whole input
	bare                // one message with the headers and the payload's digest; the payload is not stored
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
	payload uint64 // sequence of the separate message with the payload; 0 if there is none
	retried bool   // whether all forms were tried again after the worker learned the server's max_payload

	store func(ctx context.Context, m *nats.Msg) error // stores a message of the dead letter; nil means that send publishes it
}

// noRecord marks the dead letter of a whole message.
const noRecord = -1

// publishAlone publishes the dead letter in its form, or in the next one that the server accepts.
func (l *deadLetter) publishAlone(ctx context.Context) error {
	for {
		err := l.publish(ctx)
		if !publisher.Unstorable(err) || l.form == bare {
			return err
		}
		l.form++
		if l.form == within && l.record == noRecord {
			l.form++
		}
		if l.form == bare && !l.retried && l.w.size.learn(ctx, l.d, err) {
			l.form, l.retried = whole, true
		}
	}
}

func (l *deadLetter) publish(ctx context.Context) (err error) {
	switch l.form {
	case whole, ownOnly:
		return l.send(ctx, l.form == whole, l.form.omitted(), l.body)
	case apart:
		err = l.storePayload(ctx)
	case within:
		err = l.storeInput(ctx)
	}
	if err != nil {
		return err
	}
	if err = l.send(ctx, true, l.form.omitted(), nil); publisher.Unstorable(err) {
		err = l.send(ctx, false, l.form.omitted()+","+ownOnly.omitted(), nil)
	}
	return err
}

// send stores a message of the dead letter. inputs and omitted are arguments for message.
func (l *deadLetter) send(ctx context.Context, inputs bool, omitted string, body []byte) error {
	m := l.message(inputs, omitted, body)
	if l.store != nil {
		return l.store(ctx, m)
	}
	return l.w.again.Publish(ctx, []*nats.Msg{m}, nil)[0].Err
}

// message returns a message with the dead letter's headers. It adds the input's headers if inputs is set. omitted is the
// value of HeaderOmitted.
func (l *deadLetter) message(inputs bool, omitted string, body []byte) *nats.Msg {
	h := DeadLetterHeader(l.d, l.why, l.cause, inputs)
	h[jetstream.MsgIDHeader] = []string{l.id}
	if l.record != noRecord {
		h[HeaderRecord] = []string{strconv.Itoa(l.record)}
		maps.DeleteFunc(h, func(key string, _ []string) bool { return describesBody(key) }) // they describe the whole message
	}
	if omitted != "" {
		h[HeaderOmitted] = []string{omitted}
	}
	if l.payload > 0 {
		h[HeaderPayloadSequence] = []string{strconv.FormatUint(l.payload, 10)}
	}
	if l.form == bare {
		h[HeaderPayloadBytes], h[HeaderPayloadDigest] = []string{strconv.Itoa(len(l.body))}, []string{digest(l.body)}
	}
	return &nats.Msg{Subject: l.subject, Header: h, Data: body}
}

// omitted returns the value of HeaderOmitted for a form.
func (f form) omitted() string { return [...]string{"", "headers", "payload", "record", "payload"}[f] }

// stored logs the omissions of a stored dead letter, and notifies the observer of a record's dead letter.
// ReportDeadLetter notifies the observer of a whole message's dead letter.
func (l *deadLetter) stored() {
	l.logOmission()
	if l.record != noRecord {
		l.w.observeLetter(l.d, l.record, l.why, l.cause)
	}
}

// logOmission logs the omissions of a dead letter, and notifies the observer of an omitted payload.
func (l *deadLetter) logOmission() {
	switch l.form {
	case ownOnly:
		l.w.s.Log.Warn("the input's own headers were left out of a dead letter: with them it is more than the server takes",
			"sequence", l.d.Sequence, "headers", len(l.d.Msg.Headers()))
	case apart:
		l.w.s.Log.Warn("a dead letter is stored in two messages, payload and headers: together they are more than the server takes "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "payload_sequence", l.payload)
	case within:
		l.w.s.Log.Warn("a record is larger than the server takes; its dead letter names the message with the whole input "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "record", l.record, "payload_sequence", l.payload)
	case bare:
		l.w.s.Log.Error("a dead letter is stored without its payload, which is larger than the server takes; only the input stream may still have it "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "record", l.record, "bytes", len(l.body), "digest", digest(l.body))
		l.w.s.Observer.PayloadLeftOut()
	}
}
