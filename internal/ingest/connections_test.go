package ingest

import (
	"testing"

	"millrace/internal/ingest/natsconn"
	"millrace/internal/streams"
)

func (r *rig) connections(n int) {
	r.Helper()
	for range n {
		nc, err := natsconn.Open(natsconn.Server{URL: r.workerURL}, "millrace-test-more", r.opts.Logger, r.tally.Reconnected)
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(nc.Close)
		r.opts.More = append(r.opts.More, nc)
	}
}

// TestSeveralConnections runs a worker with three connections. Each carries part of the load, and no message is lost.
func TestSeveralConnections(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			r.connections(2)
			const n, size = 3000, 1000
			r.publish(n, someBytes(size))
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			r.wantAll(n, someBytes(size))
			for i, nc := range r.opts.More {
				if s := nc.Stats(); partitions == 0 && s.OutMsgs < n/10 || partitions > 0 && s.InBytes < uint64(n/10*size) {
					t.Errorf("connection %d carried %+v", i+1, s)
				}
			}
			if s := run.nc.Stats(); partitions > 0 && (s.InBytes > uint64(n/10*size) || s.OutMsgs < n) {
				t.Errorf("the first connection carried %+v, want the %d results and none of the inputs of %d bytes", s, n, size)
			}
		})
	}
}

// TestALeaseGoesOverTheNextConnection makes a partition's connection lose all incoming messages unnoticed. The next
// lease uses another connection.
func TestALeaseGoesOverTheNextConnection(t *testing.T) {
	t.Parallel()
	r := exclusiveRig(t, 1)
	r.behindProxy().Lose(func(string, []byte) bool { return true }) // affects later connections
	r.connections(1)
	r.workerURL = r.URL
	r.connections(1)
	run := r.prepare(hostDevice(t), streams.Options{})
	r.publish(100, document)
	run.start()
	r.tally.awaitStored(t, 100)
	r.Log.Await(t, "beginning the partition anew")
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(100, document)
}

// TestOneConnectionIsEnough cuts connections permanently, for example one of two for results with shared delivery.
// The worker continues on the remaining connection.
func TestOneConnectionIsEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	p := r.behindProxy()
	r.connections(1)
	r.workerURL = r.URL
	r.connections(1)
	const n = 300
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 10})
	r.tally.awaitStored(t, 1)
	p.Refuse(true)
	r.tally.awaitStored(t, n)
	r.publishFrom(n, 2*n, document)
	r.tally.awaitStored(t, 2*n)
	if r.opts.More[0].IsConnected() {
		t.Error("the connection that was cut off is up")
	}
	p.Refuse(false)
	until(t, "the connection is up again", r.opts.More[0].IsConnected)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(2*n, document)
}
