package ingest

import (
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
)

// input takes the next input as a worker would.
func (r *rig) input() inflight.Delivery {
	r.t.Helper()
	var d inflight.Delivery
	request := pull.Request{Stream: r.opts.Stream, Consumer: r.opts.Consumer, Bytes: 1 << 20}
	came, err := pull.Fetch(r.connect(), request, 1, patience, func(m *pull.Message) {
		var err error
		if d, err = inflight.NewDelivery(m, time.Now()); err != nil {
			r.t.Error(err)
		}
	})
	if came != 1 || err != nil {
		r.t.Fatalf("%d inputs came: %v", came, err)
	}
	return d
}
