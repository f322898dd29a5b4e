package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// likeTheServers holds headers of inputs without a payload. Each equals the headers of a status message.
var likeTheServers = []nats.Header{
	{"Status": {"100"}, "Description": {"Idle Heartbeat"}},
	{"Status": {"400"}, "Description": {"Bad Request"}},
	{"Status": {"404"}, "Description": {"No Messages"}},
	{"Status": {"408"}, "Description": {"Request Timeout"}, pendingHeader: {"1000000"}},
	{"Status": {"409"}, "Description": {"Consumer Deleted"}},
	{"Status": {"409"}, "Description": {"Message Size Exceeds MaxBytes"}, pendingHeader: {"1000000"}},
	{"Status": {"423"}, "Description": {"Nats-Wrong-Pin-Id"}},
	{"Status": {"503"}},
}

// publishLikeTheServers publishes one input per header.
func (r *rig) publishLikeTheServers() {
	r.Helper()
	r.Publish(0, len(likeTheServers), func(i int) *nats.Msg { return &nats.Msg{Subject: "in.a", Header: likeTheServers[i]} })
}

func TestAnInputIsNoStatusMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publishLikeTheServers()
	p := r.open(asking(3))
	for i, h := range likeTheServers {
		m := r.next(p)
		if got := m.Headers().Get("Status"); got != h.Get("Status") || len(m.Data()) > 0 || m.Ack() != nil {
			t.Errorf("message %d has status %q, want %q", i, got, h.Get("Status"))
		}
	}
	r.until("all are acknowledged", func(c *jetstream.ConsumerInfo) bool { return c.NumAckPending == 0 && c.NumPending == 0 })
}

func TestAFetchedInputIsNoStatusMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publishLikeTheServers()
	r.until("the consumer counts the inputs", func(c *jetstream.ConsumerInfo) bool { return int(c.NumPending) == len(likeTheServers) })
	var got []string
	came, err := Fetch(r.NC, asking(3), 100, 0, func(m *Message) { got = append(got, m.Headers().Get("Status")) })
	if err != nil || came != len(likeTheServers) || len(got) != came {
		t.Errorf("fetched %d and %q (%v), want %d", came, got, err, len(likeTheServers))
	}
}

// TestEverythingComesOnce makes many requests. Each request ends at its maximum number of messages or bytes, and none
// at its duration. If the client missed the end of a request, the test would hang.
func TestEverythingComesOnce(t *testing.T) {
	t.Parallel()
	by := func(messages, bytes int) Request {
		q := asking(messages)
		q.Bytes = bytes
		return q
	}
	for name, q := range map[string]Request{
		"one at a time": asking(1), "by messages": asking(7), "by bytes": by(1000, 3000), "by both": by(9, 1000),
		"all at once": asking(4096),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			const n = 1000
			r.publish(0, n, 50)
			p := r.open(q)
			for i := range n {
				if m := r.next(p); string(m.Data()) != fmt.Sprintf("%050d", i) {
					t.Fatalf("message %d is %q", i, m.Data())
				}
			}
			if c := r.info(); c.NumRedelivered > 0 || c.Delivered.Consumer != n {
				t.Errorf("%d deliveries, and %d redelivered, of %d", c.Delivered.Consumer, c.NumRedelivered, n)
			}
		})
	}
}

// TestBytesThatComeOutEven makes every request end with its last byte. The server then sends no status message.
func TestBytesThatComeOutEven(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, change func(*jetstream.ConsumerConfig), request func(int) Request) {
		r, q := newRig(t, change), request(100)
		const n = 9 // one digit, so all have the same size
		r.publish(0, n, 500)
		q.Bytes = 2 * (len("in.a") + len("$JS.ACK.IN.in.1.1.1.1234567890123456789.1") + 500)
		q.Expires, q.Heartbeat = time.Minute, 10*time.Second // no timeout may hide a missing request
		p := r.open(q)
		for range n {
			r.next(p)
		}
		if p.requests.room < 0 || p.requests.asked < n/2 {
			t.Errorf("%d requests and %d bytes are left", p.requests.asked, p.requests.room)
		}
	})
}

// TestWhatWaitsIsBounded takes messages slowly. It checks that only a bounded number of messages wait in the client.
func TestWhatWaitsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 500, 100)
	p := r.open(asking(20))
	for taken := range 100 {
		r.next(p)
		r.until("the server has counted what it sends", func(c *jetstream.ConsumerInfo) bool { return c.NumAckPending > taken })
		if out := r.info().NumAckPending; out > taken+1+2*20 {
			t.Fatalf("the server has sent %d messages and the client took %d, want at most 40 in between", out, taken+1)
		}
	}
}

func TestPullSaysThatTheConsumerIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 1, 10)
	p := r.open(asking(5))
	r.next(p)
	natstest.OK(t, r.JS.DeleteConsumer(r.Ctx(), "IN", "in"))
	r.nextFails(p, ErrGone)
}

func TestPullSaysThatTheConsumerRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 3 })
	p := r.open(asking(50))
	if _, err := p.Next(r.Ctx()); err == nil || !strings.Contains(err.Error(), "MaxRequestBatch of 3") {
		t.Errorf("Next: %v, want the server's reason", err)
	}
}

func TestPullReportsThatNothingAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	q := asking(5)
	q.Consumer = "nobody"
	r.nextFails(r.open(q), nats.ErrNoResponders)
	if _, err := Fetch(r.NC, q, 1, 0, func(*Message) {}); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("Fetch: %v, want %v", err, nats.ErrNoResponders)
	}
}

// TestPullSaysThatTheServerIsSilent makes more requests than the consumer allows to wait. The server doesn't answer the excess requests.
func TestPullSaysThatTheServerIsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *jetstream.ConsumerConfig) { c.MaxWaiting = 1 })
	first := r.open(asking(5))
	natstest.OK(t, first.requests.refill())
	r.until("the request waits", func(c *jetstream.ConsumerInfo) bool { return c.NumWaiting == 1 })
	q := asking(5)
	q.Heartbeat = 50 * time.Millisecond
	r.nextFails(r.open(q), ErrSilent)
}

func TestPullSaysThatNothingComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	q := asking(5)
	q.Heartbeat, q.Idle = 5*time.Second, 500*time.Millisecond
	p := r.open(q)
	r.nextFails(p, ErrIdle)
	r.nextFails(p, ErrIdle)
	r.publish(0, 1, 10)
	m, err := p.Next(r.Ctx())
	for errors.Is(err, ErrIdle) {
		m, err = p.Next(r.Ctx())
	}
	if err != nil || string(m.Data()) != "0000000000" {
		t.Fatalf("Next: %v and %v, want the message", m, err)
	}
}

// TestAnExpiredRequestIsMadeAgain waits for many expirations.
func TestAnExpiredRequestIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	q := asking(5)
	q.Expires, q.Heartbeat, q.Idle = 2*time.Second, time.Second, time.Second
	p := r.open(q)
	r.Until("each request was made again", func() bool {
		r.nextFails(p, ErrIdle)
		return p.requests.asked >= 2*outstanding
	})
	r.publish(0, 1, 10)
	r.next(p)
}

func TestDrainedPullGivesWhatHasCome(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 100, 10)
	p := r.open(asking(100))
	r.next(p)
	out := 0
	// The server counts a message before it writes the message. It then skips the write if the client has ended the subscription.
	r.until("the server has answered both requests, and all messages have arrived", func(c *jetstream.ConsumerInfo) bool {
		out = c.NumAckPending
		return out == 100 && len(p.inboxes.in) >= out-1
	})
	p.Drain()
	for range out - 1 {
		r.next(p)
	}
	r.nextFails(p, ErrEnded)
}

func TestStoppedPullHasARest(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 10, 10)
	p := r.open(asking(100))
	r.next(p)
	r.Until("9 more messages have arrived", func() bool { return len(p.inboxes.in) == 9 })
	p.Stop()
	if rest := slices.Collect(p.Rest()); len(rest) != 9 {
		t.Errorf("the rest is %d messages, want 9", len(rest))
	}
}

func TestPullEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	p := r.open(asking(5))
	time.AfterFunc(10*time.Millisecond, r.NC.Close)
	r.nextFails(p, nats.ErrConnectionClosed)
}

func TestPullEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(r.Ctx())
	cancel()
	if _, err := r.open(asking(5)).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v, want %v", err, context.Canceled)
	}
}

// TestPullGoesOnAfterARestart loses long requests when the server restarts.
func TestPullGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.publish(0, 10, 10)
	q := asking(100)
	q.Expires, q.Heartbeat = 8*patience, 4*patience // no missing heartbeat may trigger a request within patience
	p := r.open(q)
	for range 10 {
		r.next(p)
	}
	status := r.NC.StatusChanged(nats.CONNECTED)
	r.Restart()
	<-status
	r.publish(10, 1, 10)
	r.Until("the message has arrived", func() bool { return string(r.next(p).Data()) == "0000000010" })
}

// TestARequestWhoseEndGotLostIsForgotten shows that a request is dropped some time after its expiry. Otherwise its
// messages would count forever and prevent further requests.
func TestARequestWhoseEndGotLostIsForgotten(t *testing.T) {
	now := time.Now()
	p := &requests{left: 30, room: 3000}
	p.live[1] = ask{number: 7, until: now}
	p.expire(now)
	if p.live[1].number != 7 || p.left != 30 || p.room != 3000 {
		t.Errorf("a request was forgotten too early: %+v, %d messages and %d bytes left", p.live, p.left, p.room)
	}
	p.expire(now.Add(time.Nanosecond))
	if p.live != [outstanding]ask{} || p.left != 0 || p.room != 0 {
		t.Errorf("a request that must have ended still counts: %+v, %d messages and %d bytes left", p.live, p.left, p.room)
	}
}
