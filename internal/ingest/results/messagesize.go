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

// reconnectPause is the minimum time between two reconnects for reading the server's max_payload.
const reconnectPause = time.Minute

// messageSize tracks the maximum size of messages, and updates the client's copy of the server's max_payload.
type messageSize struct {
	conns  natsconn.Connections // all connections of the worker
	log    *slog.Logger
	stream atomic.Int64 // the result stream's max_msg_size; 0 or less means no limit or unknown

	learning    sync.Mutex
	reconnected time.Time // time of the last reconnect by learn
}

func (m *messageSize) saw(info *jetstream.StreamInfo) { m.stream.Store(int64(info.Config.MaxMsgSize)) }

// maxBytes returns the maximum size of a message with a result, in bytes including headers. If the result stream's limit is unknown,
// maxBytes returns the server's.
func (m *messageSize) maxBytes() int {
	limit := m.conns[0].MaxPayload()
	if stream := m.stream.Load(); stream > 0 {
		limit = min(limit, stream)
	}
	return int(limit)
}

// learn reports whether the server might store the payload of d after a publish has failed with err. The server reports its
// max_payload only when a client connects. If the client refuses a message of a size that the server has delivered, the client's
// limit may be outdated. learn then reconnects, at most once per reconnectPause, waits for the connection, and compares the
// payload with the new limit.
func (m *messageSize) learn(ctx context.Context, d *inflight.Delivery, err error) bool {
	if !errors.Is(err, nats.ErrMaxPayload) {
		return false
	}
	m.learning.Lock()
	defer m.learning.Unlock()
	bytes, known := int64(len(d.Msg.Data())), m.conns[0].MaxPayload()
	if bytes <= known {
		return true // the limit has been raised since
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
