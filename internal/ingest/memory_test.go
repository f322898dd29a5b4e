package ingest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/streams"
)

// TestEverythingGoesThroughTheSmallestBudget lets a worker hold one delivery at a time. Every message and frame must be
// settled. Some are redelivered, one exceeds a batch or can't be decompressed, and an operator fails on one.
func TestEverythingGoesThroughTheSmallestBudget(t *testing.T) {
	t.Parallel()
	const batchBytes = 64 << 10
	for name, c := range map[string]struct {
		n, batch int
		input    func(i int) framed
		bad      []int // whole messages that become dead letters
	}{
		"messages": {150, 1024, func(i int) framed {
			if i == 30 {
				return framed{body: make([]byte, batchBytes+1)}
			}
			return framed{body: unfitAt(40)(i)}
		}, []int{30, 40}},
		"frames": {60, 16, func(i int) framed {
			switch {
			case i == 30:
				return framed{body: []byte("no zstd"), header: nats.Header{"Content-Encoding": {"zstd"}}}
			case i == 40:
				return manyLines(40, 20, 7)
			case i%2 == 0:
				return manyLines(uint64(i), 1+i%50).compressed(compression.Zstd)
			}
			return manyLines(uint64(i), 1+i%50)
		}, []int{30}},
	} {
		t.Run(name, func(t *testing.T) {
			eachMode(t, 4, func(t *testing.T, r *rig) {
				if name == "frames" {
					r.opts.Split = frame.Splitter{Framing: frame.NewlineDelimited, MaxRecords: 1000, MaxBytes: 1 << 20}
					r.opts.Decompress = compression.Auto
				}
				r.provision()
				var inputs []framed
				for i := range c.n {
					inputs = append(inputs, c.input(i))
				}
				half := c.n / 2
				r.publishFrames(inputs[:half])
				if !r.opts.Exclusive {
					r.giveBack(20)
				}
				kernels, watched := watchKernels(pickyKernels())
				o := streams.Options{BatchBytes: batchBytes, BatchPayloads: c.batch}
				first := r.prepare(openHost(t, kernels), o)
				first.worker.pool.Limit = 1
				first.start()
				r.awaitSettled()
				first.finish()

				// No input waits while redelivered ones are isolated, so another worker takes the second half.
				open := watched.hold(t)
				second := r.prepare(openHost(t, kernels), o)
				second.worker.pool.Limit = 1
				second.start()
				r.Publish(half, c.n, func(i int) *nats.Msg {
					return &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%3), Data: inputs[i].body, Header: inputs[i].header}
				})
				until(t, "an input waits for memory", func() bool { return second.worker.Memory().Waits > 0 })
				open()
				r.awaitSettled()
				second.finish()
				if name == "messages" {
					r.wantApart(c.n, func(i int) []byte { return c.input(i).body }, nil, c.bad...)
					return
				}
				found, dead := r.stored("results.>"), r.deadLetters()
				for i, in := range inputs {
					seq := uint64(i + 1)
					if !slices.Contains(c.bad, i) {
						r.wantFrame(seq, in, found[seq])
						r.wantRecordLetters(seq, in, dead[seq])
					} else if len(dead[seq]) != 1 || len(found[seq]) != 0 {
						t.Errorf("the frame that can't be decompressed has %d dead letters and %d results, want 1 and 0", len(dead[seq]), len(found[seq]))
					}
				}
			})
		})
	}
}

// TestBatchStaysWithinItsShare uses a busy lane, so batches fill, and memory for only a few payloads in each batch.
func TestBatchStaysWithinItsShare(t *testing.T) {
	r := provisioned(t)
	const n, share = 400, 10
	payload := func(int) []byte { return []byte("x") }
	r.publish(n, payload)
	seen := r.observeRecords()
	run := r.prepare(hostDevice(t), streams.Options{})
	one := run.worker.pool.DeliveryCost(0, 0, nil)
	run.worker.pool.Limit = 4 * share * one
	run.start()
	run.finishAfter(n)
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
	size := w.opts.pullSize(w.conns[0].MaxPayload(), consumer.CachedInfo().Config)
	if least := int(w.conns[0].MaxPayload()); size.Limit(w.conns[0]).Bytes() < least || size.Messages >= memory.RequestMessages {
		t.Errorf("a request is for %d messages and %d bytes", size.Messages, size.Limit(w.conns[0]).Bytes())
	}
	if pulled := int64(r.opts.Partitions * memory.PendingRequests * size.Limit(w.conns[0]).Bytes()); w.Memory().Limit+pulled > r.opts.Memory {
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
		fields          bool // whether the payloads are JSON objects, of which the worker reads members
	}{
		// This case is first because it uses the least memory. The heap that a case leaves is freed during the next
		// case.
		{name: "one byte, exclusive", operators: "crc32c", n: 6000, bytes: 1, exclusive: true},
		{name: "one byte", operators: "crc32c", n: 10000, bytes: 1},
		{name: "long results", operators: "minhash?hashes=1024", n: 3000, bytes: 1},
		{name: "many headers", operators: "crc32c", n: 2500, bytes: 1, header: manyHeaders(50)},
		{name: "large", operators: "crc32c", n: 600, bytes: 100 << 10},
		{name: "short fields", operators: "crc32c", n: 5000, bytes: 1, fields: true},
		{name: "long fields", operators: "crc32c", n: 400, bytes: 100 << 10, fields: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			grown, counted := holdAll(t, c.operators, c.n, c.bytes, c.header, c.exclusive, c.fields)
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
func holdAll(t *testing.T, operators string, n, bytes int, header nats.Header, exclusive, fields bool) (grown, counted int64) {
	r := newRigAlone(t)
	r.operators(operators)
	if exclusive {
		r.opts.Exclusive, r.opts.Partitions = true, 2
	}
	payload, first := []byte(strings.Repeat("x", bytes)), document
	if fields {
		r.opts.Split = frame.Splitter{Field: "text", Keep: []string{"id"}, MaxBytes: 1 << 20}
		payload = fmt.Appendf(nil, `{"id":"a document","text":"%s"}`, payload)
		first = func(int) []byte { return payload }
	}
	r.provision()
	run := r.run(hostDevice(t), streams.Options{BatchBytes: 4 << 20, BatchPayloads: 8192, Lanes: 4})
	const early = 3 // inputs that make leases begin
	r.publish(early, first)
	r.tally.awaitStored(t, early)
	empty := r.fill(1)
	before := quietHeap(t)
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
	empty()
	run.finishAfter(early + n)
	return grown, counted
}
