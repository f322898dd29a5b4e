package ingest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/streams"
)

// TestEveryPayloadComesBackOnce also checks the order of results with exclusive delivery.
func TestEveryPayloadComesBackOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		n       int
		payload func(i int) []byte
		o       streams.Options
	}{
		{"documents", 1500, document, streams.Options{}},
		{"empty payloads", 200, someBytes(0), streams.Options{BatchBytes: 1, BatchPayloads: 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachMode(t, 3, func(t *testing.T, r *rig) {
				r.provision()
				r.publish(c.n, c.payload)
				r.run(hostDevice(t), c.o).finishAfter(c.n)
				r.wantAll(c.n, c.payload)
				r.wantSettled(c.n)
				if r.opts.Exclusive {
					r.wantInOrder()
				}
			})
		})
	}
}

// TestResultHeaders shows that a result names its input and has its input's headers. Batch observers receive the
// headers of each input, for example the trace context.
func TestResultHeaders(t *testing.T) {
	eachMode(t, 2, func(t *testing.T, r *rig) {
		seen := map[uint64]string{} // trace parent that the batch observer received, by sequence
		r.observePayloads(func(_ int, p inflight.Payload) { seen[p.Sequence] = p.Header["traceparent"][0] })
		r.provision()
		const n = 20
		parent := func(i int) string { return fmt.Sprintf("00-%032x-%016x-01", i+1, i+1) }
		r.Publish(0, n, func(i int) *nats.Msg {
			h := nats.Header{"traceparent": {parent(i)}, "tracestate": {"vendor=value"}, "Trace": {"own"}}
			return &nats.Msg{Subject: "ingest.web.0", Header: h}
		})
		r.run(hostDevice(t), streams.Options{}).finishAfter(n)
		found := r.stored("results.>")
		for i := range n {
			seq := uint64(i + 1)
			wantHeaders(t, found[seq][0].Headers(), map[string]string{
				results.HeaderStream: "INGEST", results.HeaderSequence: fmt.Sprint(seq), results.HeaderSubject: "ingest.web.0",
				results.HeaderOperators: "crc32c,minhash?k=4&hashes=4&seed=42",
				jetstream.MsgIDHeader:   fmt.Sprintf("INGEST:%d:%d", seq, r.storedAt(seq).UnixNano()),
				"Content-Type":          "application/json", "Content-Encoding": "", "traceparent": parent(i), "tracestate": "vendor=value", "Trace": "own",
			})
			if all := found[seq][0].Headers()["traceparent"]; len(all) != 1 {
				t.Errorf("the result of %d has the trace parents %q, want one", seq, all)
			}
			if got := seen[seq]; got != parent(i) {
				t.Errorf("the batch observer has trace parent %q for input %d, want %q", got, seq, parent(i))
			}
		}
	})
}

// storedAt returns the time when the input stream stored a message.
func (r *rig) storedAt(sequence uint64) time.Time {
	r.Helper()
	m, err := r.Stream(r.opts.Stream).GetMsg(r.Ctx(), sequence)
	check(r.TB, err)
	return m.Time
}

func TestPullGoesOnWhenTheConsumerIsBack(t *testing.T) {
	r := provisioned(t)
	r.publish(10, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.awaitSettled()
	check(r.TB, r.JS.DeleteConsumer(r.Ctx(), r.opts.Stream, r.opts.Consumer))
	r.Log.Await(t, "the consumer is gone")
	r.publishFrom(10, 20, document)
	r.provision() // a new consumer, which starts at the first input
	r.tally.awaitAcknowledged(t, 30)
	run.finish()
	r.wantAll(20, document)
}

// TestSeveralConnections runs a worker with three connections. Each carries part of the load, and no message is lost.
func TestSeveralConnections(t *testing.T) {
	eachMode(t, 3, func(t *testing.T, r *rig) {
		r.provision()
		r.connections(2)
		const n, size = 3000, 1000
		r.publish(n, someBytes(size))
		run := r.run(hostDevice(t), streams.Options{})
		run.finishAfter(n)
		r.wantAll(n, someBytes(size))
		for i, nc := range r.opts.More {
			if s := nc.Stats(); !r.opts.Exclusive && s.OutMsgs < n/10 || r.opts.Exclusive && s.InBytes < uint64(n/10*size) {
				t.Errorf("connection %d carried %+v", i+1, s)
			}
		}
		if s := run.nc.Stats(); r.opts.Exclusive && (s.InBytes > uint64(n/10*size) || s.OutMsgs < n) {
			t.Errorf("the first connection carried %+v, want the %d results and none of the inputs of %d bytes", s, n, size)
		}
	})
}

// TestALeaseGoesOverTheNextConnection makes a partition's connection lose all incoming messages unnoticed. The next
// lease uses another connection.
func TestALeaseGoesOverTheNextConnection(t *testing.T) {
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
	run.finish()
	r.wantAll(100, document)
}

// TestOneConnectionIsEnough cuts off one of two connections for results with shared delivery. The worker continues on
// the remaining connection.
func TestOneConnectionIsEnough(t *testing.T) {
	r := provisioned(t)
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
	run.finish()
	r.wantAll(2*n, document)
}

// TestAWorkerEndsWithAnyOfItsConnections closes a connection permanently, as a client does after an unknown error of
// the server. The worker ends without waiting for the drain's timeout.
func TestAWorkerEndsWithAnyOfItsConnections(t *testing.T) {
	t.Parallel()
	for _, which := range []int{0, 2} {
		t.Run(fmt.Sprintf("connection %d", which), func(t *testing.T) {
			eachMode(t, 2, func(t *testing.T, r *rig) {
				r.opts.DrainTimeout = 10 * patience
				if r.opts.Exclusive && which == 0 {
					r.opts.DrainTimeout = time.Second // results can't be stored without this connection
				}
				r.provision()
				r.connections(2)
				d, w := watchedDevice(t)
				run := r.prepare(d, streams.Options{Lanes: 1})
				open := w.hold(t)
				r.publish(1, someBytes(10))
				run.start()
				w.await(t, 1, 10)
				run.worker.conns[which].Close()
				open()
				wantError(t, run.wait(), nats.ErrConnectionClosed)
			})
		})
	}
}

// TestAConsumerThatCannotDeliverIsNoticed uses a consumer whose limit is smaller than its next message. The worker
// reports the problem, and continues after the limit is raised. Its requests stay within the consumer's other limits,
// because the server silently refuses a larger request.
func TestAConsumerThatCannotDeliverIsNoticed(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, r *rig) {
		r.provision()
		limit := func(bytes int) {
			r.updateConsumer(func(c *jetstream.ConsumerConfig) {
				c.MaxRequestMaxBytes, c.MaxRequestBatch, c.MaxRequestExpires = bytes, 7, 3*time.Second
			})
		}
		limit(64 << 10)
		r.publish(1, document)
		run := r.prepare(hostDevice(t), streams.Options{})
		run.worker.shards[0].stalls.After, run.worker.shards[0].stalls.UnreadyAfter = 3*time.Second, 3*time.Second
		run.start()
		r.tally.awaitStored(t, 1)
		until(t, "the worker waits for inputs and is not stalled", func() bool { return run.worker.Stalled() == nil })
		payload := func(i int) []byte {
			if i == 1 {
				return someBytes(100 << 10)(i)
			}
			return document(i)
		}
		r.publishFrom(1, 100, payload)
		r.tally.awaitFunc(t, "stalled", 1, r.tally.stalledNow)
		r.Log.Await(t, "the consumer has messages and delivers none")
		r.Log.Await(t, "max_request_max_bytes")
		until(t, "the worker isn't ready", func() bool { return run.worker.Stalled() != nil })
		limit(0)
		run.finishAfter(100)
		r.wantAll(100, payload)
	})
}
