package pull

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

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
