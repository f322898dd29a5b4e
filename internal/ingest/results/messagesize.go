package results

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
)

// reconnectPause is the minimum time between two reconnections that are made to learn the server's max_payload.
const reconnectPause = time.Minute

// messageSize tracks how large messages may be. It keeps the client's copy of the server's max_payload up to date.
type messageSize struct {
	conns       natsconn.Connections // all connections of the worker
	log         *slog.Logger
	reconnected atomic.Int64 // when the worker last reconnected, in Unix nanoseconds
	stream      atomic.Int64 // the result stream's max_msg_size; 0 or less: none, or unknown
}

// saw records the state of the result stream.
func (m *messageSize) saw(info *jetstream.StreamInfo) { m.stream.Store(int64(info.Config.MaxMsgSize)) }

// most returns the largest message with a result that is accepted, in bytes with its headers. Without the permission to read the result
// stream's settings, only the server's limit is known.
func (m *messageSize) most() int {
	most := m.conns[0].MaxPayload()
	if stream := m.stream.Load(); stream > 0 {
		most = min(most, stream)
	}
	return int(most)
}

// learn reconnects if the client refuses to send a message of a size that the server has delivered. The server's max_payload was
// then raised, and the server reports it to clients only when they connect. err is why a dead letter of d could not be stored. If
// max_payload was lowered instead, reconnecting does not help, so learn reconnects at most once per reconnectPause.
func (m *messageSize) learn(d *inflight.Delivery, err error) {
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
