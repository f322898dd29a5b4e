package ingest

import (
	"time"
)

// This file has functions that change or read the server without the worker.

// storedAt returns the time when the input stream stored a message.
func (r *rig) storedAt(sequence uint64) time.Time {
	r.Helper()
	m, err := r.Stream(r.opts.Stream).GetMsg(r.Ctx(), sequence)
	if err != nil {
		r.Fatal(err)
	}
	return m.Time
}

// awaitFinished returns once all n inputs are settled, after any number of deliveries. The server processes
// acknowledgements some time after it has read them.
func (r *rig) awaitFinished(n int) {
	r.Helper()
	r.Until("every input is acknowledged", func() bool {
		info := r.consumerInfo()
		return info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n)
	})
}

// wantSettled checks that all n inputs are settled and none was delivered twice.
func (r *rig) wantSettled(n int) {
	r.Helper()
	r.awaitFinished(n)
	if info := r.consumerInfo(); info.Delivered.Consumer != uint64(n) || info.NumRedelivered != 0 {
		r.Errorf("%d deliveries of %d inputs, %d redelivered; want one each", info.Delivered.Consumer, n, info.NumRedelivered)
	}
}
