package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestEveryPayloadGoesThroughTheSmallestBudget lets a worker hold one delivery at a time. Every input must be
// settled. Some are redelivered, one exceeds a batch, and an operator fails on one.
func TestEveryPayloadGoesThroughTheSmallestBudget(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			const n, batchBytes = 150, 64 << 10
			unfit := []int{40}
			if r.opts.Exclusive {
				unfit = nil // the lease would restart, which other tests cover
			}
			given := unfitAt(unfit...)
			payload := func(i int) []byte {
				if i == 70 {
					return make([]byte, batchBytes+1)
				}
				return given(i)
			}
			r.publish(n, payload)
			if !r.opts.Exclusive {
				r.deliverBefore(20)
			}
			run := r.prepare(openHost(t, pickyKernels()), streams.Options{BatchBytes: batchBytes})
			run.worker.pool.Limit = 1
			run.start()
			r.tally.await(t, inflight.DeadLettered, 1+len(unfit))
			r.tally.awaitStored(t, n-1-len(unfit))
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			if m := run.worker.Memory(); m.Waits == 0 {
				t.Error("nothing ever waited for memory")
			}
			found, dead := r.stored("results.>"), r.storedIn(deadStream, "deadletter.>")
			if len(found) != n-1-len(unfit) || len(dead) != 1+len(unfit) {
				t.Errorf("results of %d inputs and dead letters of %d, want %d and %d", len(found), len(dead), n-1-len(unfit), 1+len(unfit))
			}
		})
	}
}

func (r *rig) deliverBefore(n int) {
	r.Helper()
	c := r.Consumer(r.opts.Stream, r.opts.Consumer)
	came, err := c.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		r.Fatal(err)
	}
	for m := range came.Messages() {
		if err := m.Nak(); err != nil {
			r.Fatal(err)
		}
	}
	if err := came.Error(); err != nil {
		r.Fatal(err)
	}
}

// TestBatchStaysWithinItsShare uses a busy lane, so batches fill, and memory for only a few payloads in each batch.
func TestBatchStaysWithinItsShare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n, share = 400, 10
	seen := &records{}
	payload := func(int) []byte { return []byte("x") }
	r.publish(n, payload)
	r.opts.Records = seen
	run := r.prepare(hostDevice(t), streams.Options{})
	one := run.worker.pool.DeliveryCost(0, 0, nil)
	run.worker.pool.Limit = 4 * share * one
	run.start()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	largest := 0
	for _, b := range seen.all() {
		largest = max(largest, b.Payloads)
	}
	if largest > share || largest < share/2 {
		t.Errorf("the largest batch has %d payloads, and there is memory for %d", largest, share)
	}
}

// TestMemoryIsDivided shows that the worker's memory includes prefetched messages, and that too little memory is an error.
func TestMemoryIsDivided(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 64
	r.provision()
	r.opts.Memory = 1 << 30
	w := r.prepare(hostDevice(t), streams.Options{}).worker
	consumer, err := findConsumer(r.Ctx(), r.JS, r.opts.Topology)
	if err != nil {
		t.Fatal(err)
	}
	size := w.opts.pullSize(w.nc.MaxPayload(), consumer.CachedInfo().Config)
	if least := int(w.nc.MaxPayload()); size.Limit(w.nc).Bytes() < least || size.Messages >= memory.RequestMessages {
		t.Errorf("a request is for %d messages and %d bytes", size.Messages, size.Limit(w.nc).Bytes())
	}
	if pulled := int64(r.opts.Partitions * memory.PendingRequests * size.Limit(w.nc).Bytes()); w.Memory().Limit+pulled > r.opts.Memory {
		t.Errorf("all of it together may take %d MiB", (w.Memory().Limit+pulled)>>20)
	}
	r.opts.Memory = 50 << 20
	p := r.pipeline(hostDevice(t), streams.Options{})
	_, err = NewWorker(r.Ctx(), r.NC, []*streams.Pipeline{p}, r.opts)
	if !errors.As(err, new(*memory.Error)) || !strings.Contains(err.Error(), "MILLRACE_PARTITIONS") {
		t.Errorf("with too little memory NewWorker = %v, want a *memory.Error and what to lower", err)
	}
}

// maxCounted is the maximum ratio of counted memory to memory in use.
const maxCounted = 3

// liveHeap returns the bytes in use on the heap, without garbage.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // free what finalizers and pools release
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// quietHeap returns the bytes in use on the heap, once they no longer decrease because memory of earlier tests is
// freed.
func quietHeap(t testing.TB) (bytes int64) {
	t.Helper()
	const noise = 1 << 16
	bytes = liveHeap()
	until(t, "the heap does not decrease", func() bool {
		before := bytes
		bytes = liveHeap()
		return bytes > before-noise
	})
	return bytes
}

// TestCostsCoverTheHeap compares the growth of the heap with the memory that the worker counts. The server refuses
// results, so all inputs stay in flight. If the worker counted far more than it uses, it would hold far fewer inputs
// than fit in memory. The test is not parallel and its server is a separate process, because other allocations would
// distort the result.
func TestCostsCoverTheHeap(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED WITH -short: MEASURES THE HEAP, ALONE")
	}
	for _, c := range []struct {
		name, operators string
		n, bytes        int
		header          nats.Header
		exclusive       bool
	}{
		// This case is first because it uses the least memory. The heap that a case leaves is freed during the next
		// case.
		{name: "one byte, exclusive", operators: "crc32c", n: 6000, bytes: 1, exclusive: true},
		{name: "one byte", operators: "crc32c", n: 10000, bytes: 1},
		{name: "long results", operators: "minhash?hashes=1024", n: 3000, bytes: 1},
		{name: "many headers", operators: "crc32c", n: 2500, bytes: 1, header: manyHeaders(50)},
		{name: "large", operators: "crc32c", n: 600, bytes: 100 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			grown, counted := holdAll(t, c.operators, c.n, c.bytes, c.header, c.exclusive)
			t.Logf("%d inputs: %d bytes of the heap each, %d counted", c.n, grown/int64(c.n), counted/int64(c.n))
			if grown > counted {
				t.Errorf("the heap has grown by %d bytes, and %d are counted", grown, counted)
			}
		})
	}
}

// medianOfLast returns the median of the last n numbers, or of all numbers if there are fewer.
func medianOfLast(numbers []int64, n int) int64 {
	last := slices.Sorted(slices.Values(numbers[max(len(numbers)-n, 0):]))
	return last[len(last)/2]
}

func manyHeaders(n int) nats.Header {
	h := nats.Header{}
	for i := range n {
		h[fmt.Sprintf("h%d", i)] = []string{"v"}
	}
	return h
}

// holdAll makes a worker hold n inputs. It returns the growth of the heap and the memory that the worker counts for
// the inputs, in bytes.
func holdAll(t *testing.T, operators string, n, bytes int, header nats.Header, exclusive bool) (grown, counted int64) {
	r := newRigAlone(t)
	var err error
	if r.opts.Operators, err = operator.ParseList(operators); err != nil {
		t.Fatal(err)
	}
	if exclusive {
		r.opts.Exclusive, r.opts.Partitions = true, 2
	}
	r.provision()
	s := r.Stream(r.opts.ResultStream)
	open := s.CachedInfo().Config
	run := r.prepare(hostDevice(t), streams.Options{BatchBytes: 4 << 20, BatchPayloads: 8192, Lanes: 4})
	run.start()
	const early = 3 // inputs that make leases begin
	r.publish(early, document)
	r.tally.awaitStored(t, early)
	full := open
	full.Discard, full.MaxMsgs = jetstream.DiscardNew, 1
	r.Create(full)
	before := quietHeap(t)
	payload := []byte(strings.Repeat("x", bytes))
	r.Publish(0, n, func(i int) *nats.Msg {
		return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: payload, Header: header}
	})
	minimum := int64(n-1) * (int64(bytes) + run.worker.pool.DeliveryCost(0, 0, nil))
	until(t, "all inputs are in hand", func() bool { return run.worker.Memory().Used >= minimum })
	var looks []int64
	until(t, "the heap has grown by what is counted, or nearly", func() bool {
		looks = append(looks, liveHeap()-before)
		counted = run.worker.Memory().Used
		grown = medianOfLast(looks, 10) // computing and publishing continue, so the heap varies
		return len(looks) >= 10 && counted <= maxCounted*grown
	})
	r.Create(open)
	r.tally.awaitStored(t, early+n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	return grown, counted
}

// TestMaxPayloadRaisedWhileRunning has one input of 3 MiB before 300 small ones. The server's limit was 1 MiB when
// the worker started. If the large input exceeds a batch, it becomes a dead letter, which the worker's outdated
// client would refuse.
func TestMaxPayloadRaisedWhileRunning(t *testing.T) {
	t.Parallel()
	const large, small = 3 << 20, 300
	for _, mode := range []string{"shared", "exclusive"} {
		for name, batchBytes := range map[string]int{"fits a batch": 4 << 20, "dead letter": 1 << 20} {
			t.Run(mode+", "+name, func(t *testing.T) {
				t.Parallel()
				s, reload := natstest.Reloading(t, 1<<20)
				r := newRigAt(t, s.ClientURL())
				r.opts.Exclusive, r.opts.Partitions = mode == "exclusive", 1
				// Messages in transit during a reconnect are redelivered after AckWait.
				r.opts.AckWait = 2 * time.Second
				r.provision()
				r.publish(1, document)
				run := r.run(hostDevice(t), streams.Options{BatchBytes: batchBytes})
				r.tally.awaitStored(t, 1)
				reload(8 << 20)
				r.NC = r.Connect(r.URL) // a client reads max_payload only when it connects
				r.JS = r.JetStream(r.NC)
				r.publishFrom(1, 2, someBytes(large))
				r.publishFrom(2, 2+small, document)
				found := 2 + small
				if batchBytes < large {
					found--
					r.tally.await(t, inflight.DeadLettered, 1)
				}
				r.tally.awaitStored(t, found)
				if err := run.drain(); err != nil {
					t.Fatalf("Run: %v", err)
				}
				if got := r.stored("results.>"); len(got) != found {
					t.Errorf("%d results, want %d", len(got), found)
				}
				if got := r.storedIn(deadStream, "deadletter.>"); len(got) != 2+small-found || len(got) > 0 && len(got[2]) != 1 {
					t.Errorf("%d dead letters, want %d", len(got), 2+small-found)
				}
			})
		}
	}
}
