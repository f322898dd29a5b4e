package pull

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	want := jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair{Stream: 70, Consumer: 8}, NumDelivered: 2, NumPending: 9,
		Timestamp: time.Unix(0, 1234567890), Stream: "S", Consumer: "c",
	}
	far := want
	far.Domain = "hub"
	for reply, want := range map[string]*jetstream.MsgMetadata{
		"$JS.ACK.S.c.2.70.8.1234567890.9":            &want,
		"$JS.ACK._.hash.S.c.2.70.8.1234567890.9":     &want,
		"$JS.ACK._.hash.S.c.2.70.8.1234567890.9.rnd": &want,
		"$JS.ACK.hub.hash.S.c.2.70.8.1234567890.9.r": &far,
		"":                                     nil,
		"reply":                                nil,
		"$JS.ACK.S.c.2.70.8.1234567890":        nil,
		"$JS.ACK.S.c.2.70.8.1234567890.9.more": nil,
		"$JS.ACK.S.c.2.x.8.1234567890.9":       nil,
		"$JS.ACK.S.c.2.-70.8.1234567890.9":     nil,
		"a.b.S.c.2.70.8.1234567890.9":          nil,
	} {
		m := &Message{raw: &nats.Msg{Reply: reply}}
		got, err := m.Metadata()
		switch {
		case want == nil && !errors.Is(err, jetstream.ErrNotJSMessage):
			t.Errorf("%q: %+v and %v, want an error", reply, got, err)
		case want != nil && (err != nil || *got != *want):
			t.Errorf("%q: %+v and %v, want %+v", reply, got, err, *want)
		}
	}
}

// TestStoredMessageIsAcknowledged reads a message from the stream that was delivered to another client, and acknowledges it.
func TestStoredMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 3, 10)
	p := r.open(asking(10))
	for range 3 {
		r.next(p)
	}
	for _, raw := range r.Stored("IN") {
		m := Stored(r.NC, "IN", "in", raw.Sequence, raw)
		if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != raw.Sequence || !meta.Timestamp.Equal(raw.Time) {
			t.Errorf("metadata %+v and %v of message %d", meta, err, raw.Sequence)
		}
		natstest.OK(t, m.DoubleAck(r.Ctx()))
	}
	if out := r.info().NumAckPending; out != 0 {
		t.Errorf("%d are not acknowledged", out)
	}
}

// TestWordsAboutAMessage sends each kind of acknowledgement that makes the server redeliver a message or stop delivering it.
func TestWordsAboutAMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Hour })
	r.publish(0, 1, 10)
	p := r.open(asking(10))
	m := r.next(p)
	nak := func(delay time.Duration) func() error { return func() error { return m.NakWithDelay(delay) } }
	for n, word := range []func() error{func() error { return m.Nak() }, nak(0), nak(time.Millisecond)} {
		natstest.OK(t, word())
		m = r.next(p)
		if meta, err := m.Metadata(); err != nil || int(meta.NumDelivered) != n+2 {
			t.Fatalf("after word %d: %+v and %v", n, meta, err)
		}
	}
	natstest.OK(t, errors.Join(m.InProgress(), m.TermWithReason("no more of it")))
	r.until("the message is settled", func(c *jetstream.ConsumerInfo) bool { return c.NumAckPending == 0 })
}

// TestReceipt shows that a receipt keeps only the data for an acknowledgement, without the possibly large body and headers.
func TestReceipt(t *testing.T) {
	t.Parallel()
	whole := &Message{raw: &nats.Msg{
		Subject: "ingest.a", Reply: "$JS.ACK.INGEST.millrace.1.2.3.4.5",
		Header: nats.Header{"A": {"b"}}, Data: make([]byte, 1000),
	}}
	receipt := whole.AckToken().(*Message)
	if receipt.Reply() != whole.Reply() || receipt.Subject() != whole.Subject() {
		t.Errorf("the receipt is for %q on %q", receipt.Subject(), receipt.Reply())
	}
	if len(receipt.Data()) != 0 || receipt.HeaderBytes() != 0 || len(receipt.Headers()) != 0 {
		t.Errorf("the receipt has %d bytes of payload and %d of headers", len(receipt.Data()), receipt.HeaderBytes())
	}
	if got, err := receipt.Metadata(); err != nil || got.Sequence.Stream != 2 {
		t.Errorf("the receipt's metadata: %+v, %v", got, err)
	}
}
