package publisher

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
)

// Windowed publishes each message separately, with many messages in flight within a publish window. A missing acknowledgement is
// an error. The caller decides whether to publish again.
type Windowed struct {
	conns   []*connection
	turn    atomic.Uint32
	timeout time.Duration
}

// NewWindowed returns a Windowed that publishes to streams of api. Publish calls alternate between conns, which the caller still
// owns. A publish fails if its answer takes longer than timeout; 0 means Timeout. NewWindowed fails if conns is empty.
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

// next returns the next connection, round-robin. It skips connections that are down, unless all are down.
func (w *Windowed) next() *connection {
	first := w.turn.Add(1)
	for i := range w.conns {
		if l := w.conns[(int(first)+i)%len(w.conns)]; l.nc.IsConnected() {
			return l
		}
	}
	return w.conns[int(first)%len(w.conns)]
}

// Publish implements Publisher. Messages beyond the window wait for space in it.
func (w *Windowed) Publish(ctx context.Context, msgs []*nats.Msg, dst []Answer) []Answer {
	l := w.next()
	// The window identifies messages by their address, and the caller may publish a message again while the client still has the
	// first copy.
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
