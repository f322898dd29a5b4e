package results

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/publisher"
)

// payloadTimeout bounds how long the server may take to store the message with only a payload.
const payloadTimeout = 10 * time.Second

// storePayload stores the payload in a message without headers, unless it is stored. The message has no id, since that would be a
// header. If the dead letter itself is not stored then, the payload is stored a second time when the input is redelivered.
func (l *deadLetter) storePayload(ctx context.Context) (err error) {
	if l.payload == 0 {
		l.payload, err = l.storeApart(ctx, &nats.Msg{Subject: l.subject, Data: l.body})
	}
	return err
}

// storeInput stores the whole input that the record is part of, once for all its records. Without space for the input's headers it stores
// the body alone.
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

// input returns a message with the input's body and headers. It is no dead letter, so it has none of the headers that name an input.
func (l *deadLetter) input() *nats.Msg {
	h := inputHeader(l.d)
	id := jetstream.MsgIDHeader
	if !l.w.s.ResultIDs {
		id = commit.HeaderID
	}
	h[id] = []string{inputID(l.d)}
	return &nats.Msg{Subject: l.subject, Header: h, Data: l.d.Msg.Data()}
}

// storeApart stores a message beside the dead letter and returns its sequence.
func (l *deadLetter) storeApart(ctx context.Context, m *nats.Msg) (at uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, payloadTimeout)
	defer cancel()
	ack, err := l.w.js.PublishMsg(ctx, m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}
