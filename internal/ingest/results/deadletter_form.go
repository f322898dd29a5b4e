package results

import (
	"context"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/store"
)

// form is the division of a dead letter into messages. The worker uses the first form that the server accepts.
type form uint8

const (
	whole   form = iota // one message with the input's headers and Millrace's
	ownOnly             // one message with Millrace's headers only
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
	id      string // id of the message with the headers
	body    []byte // body of the message or record
	record  int    // index of the record in its frame, or noRecord
	item    int    // index of d in the batch of a task

	contentType string // type of a record's body; empty if any bytes
	form        form
	payload     uint64 // sequence of the separate message with the payload, or 0
	retried     bool   // whether all forms were tried again after learn returned true

	store func(ctx context.Context, m *nats.Msg) error // stores a message of the dead letter; if nil, send publishes it
}

// noRecord marks the dead letter of a whole message.
const noRecord = -1

// publishAlone publishes the dead letter in its form, or else in the next form that the server accepts.
func (l *deadLetter) publishAlone(ctx context.Context) error {
	for {
		err := l.publish(ctx)
		if !store.Unstorable(err) || l.form == bare {
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
	if err = l.send(ctx, true, l.form.omitted(), nil); store.Unstorable(err) {
		err = l.send(ctx, false, l.form.omitted()+","+ownOnly.omitted(), nil)
	}
	return err
}

// send stores a message of the dead letter. See message for inputs and omitted.
func (l *deadLetter) send(ctx context.Context, inputs bool, omitted string, body []byte) error {
	m := l.message(inputs, omitted, body)
	if l.store != nil {
		return l.store(ctx, m)
	}
	return l.w.server.Again.Publish(ctx, []*nats.Msg{m}, nil)[0].Err
}

// message returns a message with the dead letter's headers. It adds the input's headers if inputs is set. omitted is the value of
// HeaderOmitted, or empty.
func (l *deadLetter) message(inputs bool, omitted string, body []byte) *nats.Msg {
	h := DeadLetterHeader(l.d, l.why, l.cause, inputs)
	h[jetstream.MsgIDHeader] = []string{l.id}
	if l.record != noRecord {
		h[HeaderRecord] = []string{strconv.Itoa(l.record)}
		maps.DeleteFunc(h, func(key string, _ []string) bool { return describesBody(key) }) // they describe the whole input
		if l.contentType != "" && body != nil {
			h[headerContentType] = []string{l.contentType}
		}
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

// omitted returns the value of HeaderOmitted for f.
func (f form) omitted() string { return [...]string{"", "headers", "payload", "record", "payload"}[f] }

// stored logs the omissions of a stored dead letter. For a record's dead letter, it also notifies the observer, like
// ReportDeadLetter for a whole message's.
func (l *deadLetter) stored() {
	l.logOmission()
	if l.record != noRecord {
		l.w.observeLetter(l.d, l.record, l.why, l.cause)
	}
}

// logOmission logs the parts that the form omits, and notifies the observer of an omitted payload.
func (l *deadLetter) logOmission() {
	switch l.form {
	case ownOnly:
		l.w.o.Log.Warn("the input's own headers were left out of a dead letter: with them, it exceeds the server's size limit",
			"sequence", l.d.Sequence, "headers", len(l.d.Msg.Headers()))
	case apart:
		l.w.o.Log.Warn("a dead letter is stored in two messages, payload and headers: together they exceed the server's size limit "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "payload_sequence", l.payload)
	case within:
		l.w.o.Log.Warn("a record exceeds the server's size limit; its dead letter names the message with the whole input "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "record", l.record, "payload_sequence", l.payload)
	case bare:
		l.w.o.Log.Error("a dead letter is stored without its payload, which exceeds the server's size limit; only the input stream may still have it "+
			"(raise max_payload, or max_msg_size of the stream)", "sequence", l.d.Sequence, "record", l.record, "bytes", len(l.body), "digest", digest(l.body))
		l.w.o.Observer.PayloadLeftOut()
	}
}

// storePayload stores the payload once per deadLetter, in a message without headers. The message has no id, because an id is a
// header. If the dead letter itself isn't stored, a redelivery of the input stores the payload a second time.
func (l *deadLetter) storePayload(ctx context.Context) (err error) {
	if l.payload == 0 {
		l.payload, err = l.w.server.StoreApart(ctx, &nats.Msg{Subject: l.subject, Data: l.body})
	}
	return err
}

// storeInput stores the whole input of the record, once for all records of the input. If the server refuses the input with its
// headers, storeInput stores only the body.
func (l *deadLetter) storeInput(ctx context.Context) (err error) {
	f := l.d.Frame
	if f.StoredApart == 0 {
		f.StoredApart, err = l.w.server.StoreApart(ctx, l.input())
		if store.Unstorable(err) {
			f.StoredApart, err = l.w.server.StoreApart(ctx, &nats.Msg{Subject: l.subject, Data: l.d.Msg.Data()})
		}
	}
	l.payload = f.StoredApart
	return err
}

// input returns a message with the input's body and headers. It lacks the headers that identify an input, because it isn't a dead
// letter.
func (l *deadLetter) input() *nats.Msg {
	h := inputHeader(l.d)
	id := jetstream.MsgIDHeader
	if !l.w.o.ResultIDs {
		id = store.HeaderID
	}
	h[id] = []string{inputID(l.d)}
	return &nats.Msg{Subject: l.subject, Header: h, Data: l.d.Msg.Data()}
}
