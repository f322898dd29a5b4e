package publisher

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
)

// Windowed publishes each message separately, many at a time within a window, and waits for the acknowledgement of
// each. An acknowledgement that doesn't arrive in time is an error. The caller decides whether to publish again.
type Windowed struct {
	conns   []*connection
	turn    atomic.Uint32
	timeout time.Duration
}

// NewWindowed returns a Windowed over connections that the caller still owns. Its stream is where api is. Publish calls use the connections in
// turn. An answer that takes longer than timeout counts as lost; 0 means Timeout. It fails without a connection.
func NewWindowed(api jsapi.API, timeout time.Duration, conns ...*nats.Conn) (*Windowed, error) {
	if len(conns) == 0 {
		return nil, errors.New("publisher: no connection: give at least one")
	}
	if timeout <= 0 {
		timeout = Timeout
	}
	w := &Windowed{timeout: timeout}
	for _, nc := range conns {
		l, err := newConnection(api, nc, timeout)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, l)
	}
	return w, nil
}

// next returns the next connection in turn. It skips connections that are down while another is up.
func (w *Windowed) next() *connection {
	first := w.turn.Add(1)
	for i := range w.conns {
		if l := w.conns[(int(first)+i)%len(w.conns)]; l.nc.IsConnected() {
			return l
		}
	}
	return w.conns[int(first)%len(w.conns)]
}

// Publish implements Publisher. Messages beyond the window wait for room in it.
func (w *Windowed) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	l := w.next()
	// The window identifies messages by their address, and the caller may publish one again while the client still
	// has the first. So Publish sends copies.
	copies := make([]nats.Msg, len(msgs))
	sent := make([]sending, len(msgs))
	for i, m := range msgs {
		copies[i] = nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
		sent[i] = l.send(ctx, &copies[i])
	}
	for i := range sent {
		dst = append(dst, sent[i].wait(ctx))
	}
	return dst
}
