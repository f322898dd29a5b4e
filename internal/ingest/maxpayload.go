package ingest

import (
	"errors"
	"time"

	"millrace/internal/ingest/inflight"

	"github.com/nats-io/nats.go"
)

// reconnectPause is the least time between two connections that are made anew to learn the server's max_payload.
const reconnectPause = time.Minute

// outgrown has the worker connect again where its client refuses to send what the server has delivered: the server's
// max_payload was raised since, of which it tells its clients when they connect. err is why a dead letter of d, of this size,
// could not be stored. Where it was lowered instead that is of no use, so it happens once in reconnectPause at most.
func (w *Worker) outgrown(d *inflight.Delivery, err error) {
	known := w.nc.MaxPayload()
	if !errors.Is(err, nats.ErrMaxPayload) || int64(len(d.Msg.Data())) <= known {
		return
	}
	now, last := time.Now().UnixNano(), w.reconnected.Load()
	if last != 0 && now-last < int64(reconnectPause) || !w.reconnected.CompareAndSwap(last, now) {
		return
	}
	w.log.Warn("the server delivers messages larger than it took when the worker connected; connecting again, to learn its max_payload",
		"bytes", len(d.Msg.Data()), "known", known)
	for _, nc := range w.links {
		if err := nc.ForceReconnect(); err != nil {
			w.log.Warn("could not connect again", "error", err)
		}
	}
}
