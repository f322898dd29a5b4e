package results

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
)

// reconnectPause is the least time between two reconnections that are made to learn the server's max_payload.
const reconnectPause = time.Minute

// learnMaxPayload connects again if the client refuses to send what the server has delivered: then the server's max_payload was raised, of
// which it tells its clients only when they connect. err is why a dead letter of d could not be stored. If max_payload was lowered instead,
// reconnecting does not help, so it happens once in reconnectPause at most.
func (w *Writer) learnMaxPayload(d *inflight.Delivery, err error) {
	known := w.conns[0].MaxPayload()
	if !errors.Is(err, nats.ErrMaxPayload) || int64(len(d.Msg.Data())) <= known {
		return
	}
	now, last := time.Now().UnixNano(), w.reconnected.Load()
	if last != 0 && now-last < int64(reconnectPause) || !w.reconnected.CompareAndSwap(last, now) {
		return
	}
	w.s.Log.Warn("the server delivers messages larger than it took when the worker connected; connecting again, to learn its max_payload",
		"bytes", len(d.Msg.Data()), "known", known)
	for _, nc := range w.conns {
		if err := nc.ForceReconnect(); err != nil {
			w.s.Log.Warn("could not connect again", "error", err)
		}
	}
}
