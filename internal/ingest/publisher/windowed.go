package publisher

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Windowed publishes each message by itself, many at a time within a window, and waits for the acknowledgement of
// each. An acknowledgement that does not come in time makes an error; to publish again is the caller's business.
type Windowed struct {
	conns   []*connection
	turn    atomic.Uint32
	timeout time.Duration
}

// NewWindowed makes a store over connections that stay the caller's. They take turns, a Put each. An answer that
// takes longer than timeout counts as lost; 0 stands for Timeout. It fails without a connection.
func NewWindowed(timeout time.Duration, conns ...*nats.Conn) (*Windowed, error) {
	if len(conns) == 0 {
		return nil, errors.New("store: no connection: give at least one")
	}
	if timeout <= 0 {
		timeout = Timeout
	}
	w := &Windowed{timeout: timeout}
	for _, nc := range conns {
		l, err := newConnection(nc, timeout)
		if err != nil {
			return nil, err
		}
		w.conns = append(w.conns, l)
	}
	return w, nil
}

// next is the connection whose turn it is. One that is down is passed over while another is up.
func (w *Windowed) next() *connection {
	first := w.turn.Add(1)
	for i := range w.conns {
		if l := w.conns[(int(first)+i)%len(w.conns)]; l.nc.IsConnected() {
			return l
		}
	}
	return w.conns[int(first)%len(w.conns)]
}

// Publish implements Store. What goes beyond the window waits for room in it.
func (w *Windowed) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	l := w.next()
	// The window knows messages by their address, and the caller may put one again while the client still
	// has the first: so what is sent are copies.
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
