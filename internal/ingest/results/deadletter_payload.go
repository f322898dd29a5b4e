package results

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/publisher"
)

// payloadTimeout is the time limit for storing a separate message with the payload.
const payloadTimeout = 10 * time.Second

// storePayload stores the payload once per deadLetter, in a message without headers. The message has no id, because an id is a
// header. If the dead letter itself isn't stored, a redelivery of the input stores the payload a second time.
func (l *deadLetter) storePayload(ctx context.Context) (err error) {
	if l.payload == 0 {
		l.payload, err = l.storeApart(ctx, &nats.Msg{Subject: l.subject, Data: l.body})
	}
	return err
}

// storeInput stores the whole input of the record, once for all records of the input. If the server refuses the input with its
// headers, storeInput stores only the body.
func (l *deadLetter) storeInput(ctx context.Context) (err error) {
	f := l.d.Frame
	if f.Kept == 0 {
		f.Kept, err = l.storeApart(ctx, l.input())
		if publisher.Unstorable(err) {
			f.Kept, err = l.storeApart(ctx, &nats.Msg{Subject: l.subject, Data: l.d.Msg.Data()})
		}
	}
	l.payload = f.Kept
	return err
}

// input returns a message with the input's body and headers. It lacks the headers that identify an input, because it isn't a dead
// letter.
func (l *deadLetter) input() *nats.Msg {
	h := inputHeader(l.d)
	id := jetstream.MsgIDHeader
	if !l.w.o.ResultIDs {
		id = commit.HeaderID
	}
	h[id] = []string{inputID(l.d)}
	return &nats.Msg{Subject: l.subject, Header: h, Data: l.d.Msg.Data()}
}

// storeApart stores m and returns its stream sequence.
func (l *deadLetter) storeApart(ctx context.Context, m *nats.Msg) (at uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	ack, err := l.w.js.PublishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
