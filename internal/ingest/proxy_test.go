package ingest

import (
	"bytes"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/natstest"
)

func (r *rig) behindProxy() *natstest.Proxy {
	r.Helper()
	p := r.Proxy()
	r.workerURL = p.URL()
	return p
}

// behindCutter makes the rig's workers connect through a proxy. cutAfter cuts all connections after n more messages
// to the workers.
func (r *rig) behindCutter() (cutAfter func(n int)) {
	r.Helper()
	p := r.behindProxy()
	var left atomic.Int64
	passed := make(chan struct{}, 1)
	p.Lose(func(string, []byte) bool {
		if left.Add(-1) == 0 {
			passed <- struct{}{}
		}
		return false
	})
	return func(n int) {
		r.Helper()
		left.Store(int64(n))
		select {
		case <-passed:
		case <-time.After(patience):
			r.Fatalf("%d of %d messages have not passed", left.Load(), n)
		}
		p.Cut()
	}
}

// isPubAck reports whether a message confirms that the result stream has stored a message.
func isPubAck(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"stream":"RESULTS"`)) }

// loseAcks makes workers lose the first of every five acknowledgements of a publish. A short timeout makes them
// notice that soon.
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
