package pull

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/memory"
)

// raised returns a rig whose server raised max_payload from 1 MiB to 8 MiB after the client connected. The stream has
// a message of 3 MiB between small ones.
func raised(t *testing.T, change func(*jetstream.ConsumerConfig)) *rig {
	t.Helper()
	r := newRig(t, change, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	r.Reload(func(o *server.Options) { o.MaxPayload = 8 << 20 })
	js := r.JetStream(r.Connect(r.URL)) // the rig's client still has the old limit
	for _, size := range []int{10, 3 << 20, 10, 10} {
		if _, err := js.Publish(r.Ctx(), "in.a", make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func limitOf(nc Server, minimum, maximum int) *Limit {
	return Size{Requests: memory.Requests{Min: minimum, Max: maximum}}.Limit(nc)
}

// TestAMessageLargerThanTheClientKnows shows that a pull receives messages above the client's max_payload. The server
// doesn't notify its clients of a raised max_payload.
func TestAMessageLargerThanTheClientKnows(t *testing.T) {
	t.Parallel()
	for name, group := range map[string]bool{"shared": false, "in a group": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change, q := func(*jetstream.ConsumerConfig) {}, asking(10)
			if group {
				change, q = turn, inGroup()
				q.Messages = 10
			}
			r := raised(t, change)
			if known := r.NC.MaxPayload(); known != 1<<20 {
				t.Fatalf("the client knows of a max_payload of %d, which shows nothing", known)
			}
			q.Limit = limitOf(r.NC, 2<<20, 0)
			p := r.open(q)
			for _, size := range []int{10, 3 << 20, 10, 10} {
				if m := r.next(p); len(m.Data()) != size {
					t.Fatalf("%d bytes came, want %d", len(m.Data()), size)
				}
			}
		})
	}
}

func TestAFetchOfAMessageLargerThanTheClientKnows(t *testing.T) {
	t.Parallel()
	r := raised(t, nil)
	q := asking(10)
	q.Limit = limitOf(r.NC, 2<<20, 0)
	came, ctx := 0, r.Ctx()
	for came < 4 && ctx.Err() == nil {
		n, err := Fetch(r.NC, q, 10, 100*time.Millisecond, func(*Message) {})
		if err != nil {
			t.Fatal(err)
		}
		came += n
	}
	if came != 4 {
		t.Errorf("%d messages came, want 4", came)
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
	if _, err := p.Next(r.Ctx()); !errors.Is(err, ErrMessageTooLarge) {
		t.Errorf("%v, want %v", err, ErrMessageTooLarge)
	}
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
		t.Errorf("asks for %d bytes, and a message may have %d", l.Bytes(), known)
	}
	var err error
	for n := 0; err == nil; n++ {
		if n > 10 {
			t.Fatalf("it grows without end, and is %d", l.Bytes())
		}
		if err := l.refused(1); err != nil {
			t.Fatalf("a request for one byte says nothing, and: %v", err)
		}
		err = l.refused(l.Bytes())
	}
	if want := largest + memory.SubjectBytes; l.Bytes() != want {
		t.Errorf("it grew to %d, want %d", l.Bytes(), want)
	}
}

func heard(t *testing.T, sub *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := sub.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestADelayIsInNanoseconds shows that delays are sent in nanoseconds, as the server expects. In another unit, a
// payload that is given back for a second would be redelivered at once.
func TestADelayIsInNanoseconds(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	sub, err := r.NC.SubscribeSync("acks")
	if err != nil {
		t.Fatal(err)
	}
	m := &Message{nc: r.NC, raw: &nats.Msg{Reply: "acks"}}
	for delay, want := range map[time.Duration]string{
		1500 * time.Millisecond: `-NAK {"delay": 1500000000}`, time.Nanosecond: `-NAK {"delay": 1}`, 0: "-NAK", -1: "-NAK",
	} {
		if err := m.NakWithDelay(delay); err != nil {
			t.Fatal(err)
		}
		if got := string(heard(t, sub).Data); got != want {
			t.Errorf("a nak for %v is %q, want %q", delay, got, want)
		}
	}
}

// TestKeepingThePinRequestsNoMessage shows that Keep requests no message. A requested message would count as
// delivered although no goroutine takes it.
func TestKeepingThePinRequestsNoMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	sub, err := r.NC.SubscribeSync("requests")
	if err != nil {
		t.Fatal(err)
	}
	p := &Pull{nc: r.NC, r: Request{Group: "group", Expires: time.Minute}, requests: requests{subject: "requests"}}
	if err := p.Keep(); err != nil {
		t.Fatal(err)
	}
	p.turns.setPin("pin")
	if err := p.Keep(); err != nil {
		t.Fatal(err)
	}
	var got wire
	if err := json.Unmarshal(heard(t, sub).Data, &got); err != nil {
		t.Fatal(err)
	}
	if want := (wire{Batch: 1, MaxBytes: 1, Expires: time.Minute, Group: "group", Pin: "pin"}); got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d requests more, %v: a client without the turn has none to keep", n, err)
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
		if err := p.handleStatus(&nats.Msg{Subject: "answers.7", Header: header}); err != nil {
			t.Fatal(err)
		}
		if q.renew == counted {
			t.Errorf("%v: the requests are made anew: %t", header, q.renew)
		}
		if q.live[0].number != 0 || counted && (q.left != 7 || q.room != 50) {
			t.Errorf("%v: %+v, %d messages and %d bytes left", header, q.live, q.left, q.room)
		}
	}
}
