package results

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
	conns  natsconn.Connections // all connections of the worker
	log    *slog.Logger
	stream atomic.Int64 // the result stream's max_msg_size; 0 or less: none, or unknown

	learning    sync.Mutex
	reconnected time.Time // when the worker last reconnected to learn the limit
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

// learn reports whether the server may store the message of d after all. err is why it wasn't sent. The server reports its max_payload to
// clients only when they connect. So if the client refuses a message of a size that the server has delivered, learn reconnects, at most once
// per reconnectPause, and waits until the worker is connected. If max_payload was lowered, that doesn't help, and learn returns false.
func (m *messageSize) learn(ctx context.Context, d *inflight.Delivery, err error) bool {
	if !errors.Is(err, nats.ErrMaxPayload) {
		return false
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	bytes, known := int64(len(d.Msg.Data())), m.conns[0].MaxPayload()
	if bytes <= known {
		return true // it has been raised since
	}
	if time.Since(m.reconnected) < reconnectPause {
		return false
	}
	m.log.Warn("the server delivers messages larger than it took when the worker connected; connecting again, to learn its max_payload",
		"bytes", bytes, "known", known)
	for _, nc := range m.conns {
		if err := nc.ForceReconnect(); err != nil {
			m.log.Warn("could not connect again", "error", err)
		}
	}
	m.reconnected = time.Now()
	return m.conns[:1].AwaitConnected(ctx) && bytes <= m.conns[0].MaxPayload()
}
