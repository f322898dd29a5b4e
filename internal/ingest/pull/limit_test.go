package pull

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/memory"
)

var raisedSizes = []int{10, 3 << 20, 10, 10}

// raised returns a rig whose server raised max_payload from 1 MiB to 8 MiB after the client connected. The stream has
// a message of 3 MiB between small ones.
func raised(t *testing.T, change func(*jetstream.ConsumerConfig)) *rig {
	t.Helper()
	r := newRig(t, change, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	r.Reload(func(o *server.Options) { o.MaxPayload = 8 << 20 })
	js := r.JetStream(r.Connect(r.URL)) // the rig's client still has the old limit
	for _, size := range raisedSizes {
		natstest.Must(js.Publish(r.Ctx(), "in.a", make([]byte, size)))(t)
	}
	if known := r.NC.MaxPayload(); known != 1<<20 {
		t.Fatalf("the client already has the max_payload %d, so the test shows nothing", known)
	}
	return r
}

func limitOf(nc *nats.Conn, minimum, maximum int) *Limit {
	return Size{Requests: memory.Requests{Min: minimum, Max: maximum}}.Limit(nc)
}

// TestAMessageLargerThanTheClientKnows shows that a pull receives messages above the client's max_payload. The server
// doesn't notify its clients of a raised max_payload.
func TestAMessageLargerThanTheClientKnows(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, change func(*jetstream.ConsumerConfig), request func(int) Request) {
		r, q := raised(t, change), request(10)
		q.Limit = limitOf(r.NC, 2<<20, 0)
		p := r.open(q)
		for _, size := range raisedSizes {
			if m := r.next(p); len(m.Data()) != size {
				t.Fatalf("%d bytes came, want %d", len(m.Data()), size)
			}
		}
	})
}

func TestAFetchOfAMessageLargerThanTheClientKnows(t *testing.T) {
	t.Parallel()
	r, q := raised(t, nil), asking(10)
	q.Limit = limitOf(r.NC, 2<<20, 0)
	came := 0
	r.Until("all messages have arrived", func() bool {
		came += natstest.Must(Fetch(r.NC, q, 10, 100*time.Millisecond, func(*Message) {}))(t)
		return came >= len(raisedSizes)
	})
	if came != len(raisedSizes) {
		t.Errorf("%d messages came, want %d", came, len(raisedSizes))
	}
}

// TestAMessageLargerThanTheConsumerAllows shows that a message above the consumer's limit is an error, because no
// larger request is possible.
func TestAMessageLargerThanTheConsumerAllows(t *testing.T) {
	t.Parallel()
	const bound = 2 << 20
	r := raised(t, func(c *jetstream.ConsumerConfig) { c.MaxRequestMaxBytes = bound })
	q := asking(10)
	q.Limit = limitOf(r.NC, 1<<20, bound)
	p := r.open(q)
	r.next(p)
	r.nextFails(p, ErrMessageTooLarge)
	if _, err := Fetch(r.NC, q, 1, time.Second, func(*Message) {}); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("a fetch: %v, want %v", err, ErrMessageTooLarge)
	}
}

// TestTheLimitTakesTheLargestMessage shows that the limit follows the client's max_payload and grows at most to the
// size of the largest message.
func TestTheLimitTakesTheLargestMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	l := limitOf(r.NC, 1<<20, 0)
	if known := int(r.NC.MaxPayload()); l.Bytes() <= known {
		t.Errorf("the limit is %d bytes, but a message may have %d", l.Bytes(), known)
	}
	var err error
	for n := 0; err == nil; n++ {
		if n > 10 {
			t.Fatalf("the limit grows without a bound, and is %d", l.Bytes())
		}
		natstest.OK(t, l.refused(1)) // a refused request for one byte changes nothing
		err = l.refused(l.Bytes())
	}
	if want := largest + memory.SubjectBytes; l.Bytes() != want {
		t.Errorf("the limit grew to %d, want %d", l.Bytes(), want)
	}
}

// TestADelayIsInNanoseconds shows that delays are sent in nanoseconds, as the server expects. In another unit, a
// payload that is given back for a second would be redelivered at once.
func TestADelayIsInNanoseconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	sub := natstest.Must(r.NC.SubscribeSync("acks"))(t)
	m := &Message{nc: r.NC, raw: &nats.Msg{Reply: "acks"}}
	for delay, want := range map[time.Duration]string{
		1500 * time.Millisecond: `-NAK {"delay": 1500000000}`, time.Nanosecond: `-NAK {"delay": 1}`, 0: "-NAK", -1: "-NAK",
	} {
		natstest.OK(t, m.NakWithDelay(delay))
		if got := string(natstest.Must(sub.NextMsg(patience))(t).Data); got != want {
			t.Errorf("a nak for %v is %q, want %q", delay, got, want)
		}
	}
}

// TestKeepingThePinRequestsNoMessage shows that Keep requests no message. A requested message would count as
// delivered although no goroutine takes it.
func TestKeepingThePinRequestsNoMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	sub := natstest.Must(r.NC.SubscribeSync("requests"))(t)
	p := &Pull{nc: r.NC, r: Request{Group: "group", Expires: time.Minute}, requests: requests{subject: "requests"}}
	natstest.OK(t, p.Keep())
	p.turns.setPin("pin")
	natstest.OK(t, p.Keep())
	var got wire
	natstest.OK(t, json.Unmarshal(natstest.Must(sub.NextMsg(patience))(t).Data, &got))
	if want := (wire{Batch: 1, MaxBytes: 1, Expires: time.Minute, Group: "group", Pin: "pin"}); got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d more requests, %v; want none, because the client has no turn to keep", n, err)
	}
}

// TestARequestThatEndsWithoutACountIsOneOfNone shows that all requests are repeated if the server reports no count. A
// server without a count has none of the requests.
func TestARequestThatEndsWithoutACountIsOneOfNone(t *testing.T) {
	t.Parallel()
	for counted, header := range map[bool]nats.Header{
		false: {"Status": {"409"}, "Description": {"Leadership Change"}},
		true:  {"Status": {"409"}, "Description": {"Message Size Exceeds MaxBytes"}, pendingHeader: {"3"}, bytesHeader: {"50"}},
	} {
		p := &Pull{inboxes: inboxes{list: []*inbox{{number: 1, prefix: "answers."}}}, requests: requests{left: 10, room: 100}}
		q := &p.requests
		q.live[0] = ask{number: 7}
		natstest.OK(t, p.handleStatus(&nats.Msg{Subject: "answers.7", Header: header}))
		if q.renew == counted {
			t.Errorf("%v: the requests are repeated: %t", header, q.renew)
		}
		if q.live[0].number != 0 || counted && (q.left != 7 || q.room != 50) {
			t.Errorf("%v: %+v, %d messages and %d bytes left", header, q.live, q.left, q.room)
		}
	}
}

// TestAnInboxWithoutMessagesIsUsedAgain shows that a request without a pin that expires without a message leaves its inbox unused.
func TestAnInboxWithoutMessagesIsUsedAgain(t *testing.T) {
	t.Parallel()
	for left, want := range map[string]bool{"5": true, "4": false} {
		p := &Pull{inboxes: inboxes{list: []*inbox{{number: 1, prefix: "answers."}}}}
		p.requests.live[0] = ask{number: 7, messages: 5}
		natstest.OK(t, p.handleStatus(&nats.Msg{Subject: "answers.7", Header: nats.Header{"Status": {"408"}, pendingHeader: {left}}}))
		if p.turns.unused != want {
			t.Errorf("%s of 5 messages are left, and the inbox is unused: %v", left, p.turns.unused)
		}
	}
}

// TestAFetchGetsWhatComesAfterItsEnd simulates a server that reports the end of a request before it sends the last message.
func TestAFetchGetsWhatComesAfterItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	natstest.Must(r.NC.Subscribe(Request{Stream: "S", Consumer: "c"}.subject(), func(m *nats.Msg) {
		done := nats.Header{"Status": {"409"}, "Description": {"Batch Completed"}}
		natstest.OK(t, errors.Join(r.NC.PublishMsg(&nats.Msg{Subject: m.Reply, Header: done}), r.NC.PublishRequest(m.Reply, "ack", nil)))
	}))(t)
	if came, err := Fetch(r.NC, Request{Stream: "S", Consumer: "c"}, 1, time.Second, func(*Message) {}); came != 1 || err != nil {
		t.Errorf("%d messages came: %v", came, err)
	}
}
