package ingest

import (
	"bytes"
	"strings"
	"time"

	"millrace/internal/ingest/natstest"
)

// behindProxy makes the rig's workers connect through a proxy.
func (r *rig) behindProxy() *natstest.Proxy {
	r.t.Helper()
	p := natstest.NewProxy(r.t, "127.0.0.1:0", strings.TrimPrefix(r.server.URL(), "nats://"))
	r.url = p.URL()
	return p
}

// isPubAck reports whether a message confirms that the result stream has stored something.
func isPubAck(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"stream":"RESULTS"`)) }

// loseAcks has the worker lose every fifth acknowledgement of a publish, from the first one on, and notice that soon.
func (r *rig) loseAcks() {
	acks := 0
	r.behindProxy().Lose(func(_ string, body []byte) bool {
		if !isPubAck(body) {
			return false
		}
		acks++
		return acks%5 == 1
	})
	r.opts.publishTimeout = 300 * time.Millisecond
}
