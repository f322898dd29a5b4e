package ingest

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Functions that change or read the server without the worker's knowledge.

func (r *rig) streamConfig(name string) jetstream.StreamConfig {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func (r *rig) createStream(c jetstream.StreamConfig) {
	r.t.Helper()
	if _, err := r.js.CreateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) updateStream(c jetstream.StreamConfig) {
	r.t.Helper()
	if _, err := r.js.UpdateStream(r.ctx(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) deleteStream(name string) {
	r.t.Helper()
	if err := r.js.DeleteStream(r.ctx(), name); err != nil {
		r.t.Fatal(err)
	}
}

// storedAt returns when the input stream stored a message.
func (r *rig) storedAt(sequence uint64) time.Time {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), r.opts.Stream)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := s.GetMsg(r.ctx(), sequence)
	if err != nil {
		r.t.Fatal(err)
	}
	return m.Time
}

// restart stops the server and starts another one with the same files and address.
func (r *rig) restart() {
	r.t.Helper()
	addr := strings.TrimPrefix(r.server.URL(), "nats://")
	r.server.Close()
	r.start(addr)
}

// awaitFinished returns once the consumer has none of n inputs left, however often they were delivered. The server processes
// acknowledgements some time after it has read them.
func (r *rig) awaitFinished(n int) {
	r.t.Helper()
	until(r.t, "every input is acknowledged", func() bool {
		info := r.consumerInfo()
		return info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n)
	})
}

// wantSettled checks that the consumer has none of n inputs left, and that none was delivered twice.
func (r *rig) wantSettled(n int) {
	r.t.Helper()
	r.awaitFinished(n)
	if info := r.consumerInfo(); info.Delivered.Consumer != uint64(n) || info.NumRedelivered != 0 {
		r.t.Errorf("%d deliveries of %d inputs, %d redelivered; want one each", info.Delivered.Consumer, n, info.NumRedelivered)
	}
}
