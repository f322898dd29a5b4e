package ingest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

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
	minimum := int64(n-1) * (int64(bytes) + run.worker.pool.PerPayload())
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
