package ingest

import (
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// TestHeadersAreBounded shows that headers count towards a batch's limit of bytes. Empty payloads with large headers
// use no more memory than large payloads.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			const n, batchBytes, headerBytes = 200, 256 << 10, 60 << 10 // a stream accepts at most 64 KiB of headers
			for range n {
				m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Much": {strings.Repeat("x", headerBytes)}}}
				if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
					t.Fatal(err)
				}
			}
			seen := &records{}
			r.opts.Records = seen
			run := r.prepare(hostDevice(t), streams.Options{BatchBytes: batchBytes})
			run.start()
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			payloads := 0
			for _, b := range seen.all() {
				payloads += b.Payloads
				if b.Payloads > batchBytes/headerBytes {
					t.Errorf("batch %d has %d payloads with headers of %d bytes, more than %d bytes together", b.Batch, b.Payloads, headerBytes, batchBytes)
				}
			}
			if payloads != n {
				t.Errorf("%d payloads in batches, want %d", payloads, n)
			}
		})
	}
}

// batches is a BatchObserver that keeps the headers of each batch.
type batches struct {
	mu   sync.Mutex
	seen map[uint64]string // traceparent by sequence
}

func (b *batches) BatchEnded(_ *inflight.Record, payloads iter.Seq[inflight.Payload]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range payloads {
		b.seen[p.Sequence] = p.Header["traceparent"][0]
	}
}

// TestTraceContextIsCarriedThrough shows that a result has the trace context of its payload, and batch observers
// receive it.
func TestTraceContextIsCarriedThrough(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			observer := &batches{seen: map[uint64]string{}}
			r.opts.Batches = observer
			r.provision()
			const n = 50
			parent := func(i int) string { return fmt.Sprintf("00-%032x-%016x-01", i+1, i+1) }
			for i := range n {
				m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"traceparent": {parent(i)}, "tracestate": {"vendor=value"}}}
				if _, err := r.JS.PublishMsg(r.Ctx(), m); err != nil {
					t.Fatal(err)
				}
			}
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			found := r.stored("results.>")
			for i := range n {
				seq := uint64(i + 1)
				if h := found[seq][0].Headers(); len(h["traceparent"]) != 1 || h.Get("traceparent") != parent(i) || h.Get("tracestate") != "vendor=value" {
					t.Errorf("the result of %d has %v", seq, h)
				}
				if got := observer.seen[seq]; got != parent(i) {
					t.Errorf("who observes batches sees %q with input %d, want %q", got, seq, parent(i))
				}
			}
		})
	}
}
