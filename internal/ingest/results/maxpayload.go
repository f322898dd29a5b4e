package results

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
)

// reconnectPause is the minimum time between two reconnections that are made to learn the server's max_payload.
const reconnectPause = time.Minute

// maxPayload keeps the client's copy of the server's max_payload up to date.
type maxPayload struct {
	conns       natsconn.Connections // all connections of the worker
	log         *slog.Logger
	reconnected atomic.Int64 // when the worker last reconnected, in Unix nanoseconds
}

// learn reconnects if the client refuses to send a message of a size that the server has delivered. The server's max_payload was
// then raised, and the server reports it to clients only when they connect. err is why a dead letter of d could not be stored. If
// max_payload was lowered instead, reconnecting does not help, so learn reconnects at most once per reconnectPause.
func (m *maxPayload) learn(d *inflight.Delivery, err error) {
	known := m.conns[0].MaxPayload()
	if !errors.Is(err, nats.ErrMaxPayload) || int64(len(d.Msg.Data())) <= known {
		return
	}
	now, last := time.Now().UnixNano(), m.reconnected.Load()
	if last != 0 && now-last < int64(reconnectPause) || !m.reconnected.CompareAndSwap(last, now) {
		return
	}
	m.log.Warn("the server delivers messages larger than it took when the worker connected; connecting again, to learn its max_payload",
		"bytes", len(d.Msg.Data()), "known", known)
	for _, nc := range m.conns {
		if err := nc.ForceReconnect(); err != nil {
			m.log.Warn("could not connect again", "error", err)
		}
	}
}
