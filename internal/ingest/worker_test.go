package ingest

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/streams"
)

func document(i int) []byte { return corpus.Text(uint64(i)+1, (i*997)%1000) }

func TestEveryPayloadComesBackOnceAndRight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 1500
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestResultHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(1, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	m := r.stored("results.>")[1][0]
	for header, want := range map[string]string{
		results.HeaderStream: "INGEST", results.HeaderSequence: "1", results.HeaderSubject: "ingest.web.0",
		results.HeaderOperators: "crc32c,minhash?k=4&hashes=4&seed=1",
		"Nats-Msg-Id":           fmt.Sprintf("INGEST:1:%d", r.storedAt(1).UnixNano()), "Trace": strconv.Itoa(0),
		"Content-Type": "application/json", "Content-Encoding": "",
	} {
		if got := m.Headers().Get(header); got != want {
			t.Errorf("header %s is %q, want %q", header, got, want)
		}
	}
}

// TestConsumersOwnBoundsAreKept shows that pulls stay within the consumer's limits. The server silently refuses a
// larger pull.
func TestConsumersOwnBoundsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	settings := c.CachedInfo().Config
	settings.MaxRequestBatch, settings.MaxRequestMaxBytes, settings.MaxRequestExpires = 7, 64<<10, 3*time.Second
	if _, err := r.JS.UpdateConsumer(r.Ctx(), r.opts.Stream, settings); err != nil {
		t.Fatal(err)
	}
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantAll(n, document)
}

func TestPullGoesOnWhenTheConsumerIsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.publish(10, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, 10)
	r.awaitFinished(10)
	if err := r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, r.opts.Consumer); err != nil {
		t.Fatal(err)
	}
	r.Log.Await(t, "the consumer is gone")
	r.publishFrom(10, 20, document)
	r.provision() // a new consumer, which starts at the first input
	r.tally.awaitAcknowledged(t, 30)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(20, document)
}

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

// TestAConsumerThatCannotDeliverIsNoticed uses a consumer whose limit is smaller than its next message. The worker
// reports the problem, and continues after the limit is raised.
func TestAConsumerThatCannotDeliverIsNoticed(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"shared", "exclusive"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
			r.provision()
			name := r.opts.Consumer
			if r.opts.Exclusive {
				name = topology.PartitionConsumer(name, 0)
			}
			bound := func(bytes int) {
				c := r.Consumer(r.opts.Stream, name)
				config := c.CachedInfo().Config
				config.MaxRequestMaxBytes = bytes
				r.changePartition(config)
			}
			bound(64 << 10)
			r.publish(1, document)
			run := r.prepare(hostDevice(t), streams.Options{})
			run.worker.stalls.After, run.worker.stalls.UnreadyAfter = 3*time.Second, 3*time.Second
			run.start()
			r.tally.awaitStored(t, 1)
			if err := run.worker.Stalled(); err != nil {
				t.Errorf("with nothing wrong: %v", err)
			}
			r.publishFrom(1, 2, someBytes(100<<10))
			r.publishFrom(2, 100, document)
			r.tally.awaitFunc(t, "stalled", 1, r.tally.stalledNow)
			r.Log.Await(t, "the consumer has messages and delivers none")
			r.Log.Await(t, "max_request_max_bytes")
			if err := run.worker.Stalled(); err == nil {
				t.Error("the worker counts as ready")
			}
			bound(0)
			r.tally.awaitStored(t, 100)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
		})
	}
}
