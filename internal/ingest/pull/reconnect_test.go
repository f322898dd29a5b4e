package pull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestRequestsAreRenewedAfterAReconnection shows that requests are made again after a reconnect. The server with the
// pending requests may have been replaced without a report on them. Messages that arrived before the reconnect are
// taken first.
func TestRequestsAreRenewedAfterAReconnection(t *testing.T) {
	p := &Pull{
		inboxes:  inboxes{in: make(chan *nats.Msg, 1), ended: make(chan struct{})},
		requests: requests{left: 5, room: 50},
		status:   make(chan nats.Status, 1), tick: time.NewTicker(time.Hour),
	}
	q := &p.requests
	defer p.tick.Stop()
	q.live[0] = ask{number: 7, until: time.Now().Add(time.Hour)}
	p.status <- nats.CONNECTED
	if raw, err := p.wait(t.Context()); raw != nil || err != nil || !q.renew || q.live[0].number != 7 {
		t.Fatalf("%v and %v came, and the requests are to be made anew: %t; want nothing, and that", raw, err, q.renew)
	}
	if raw, err := p.wait(t.Context()); raw != nil || err != nil { // no message is waiting
		t.Fatalf("%v and %v came, and there was nothing", raw, err)
	}
	if q.live != [outstanding]ask{} || q.left != 0 || q.room != 0 || q.renew {
		t.Errorf("the requests of before count: %+v, %d messages and %d bytes left", q.live, q.left, q.room)
	}
}
