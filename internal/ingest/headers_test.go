package ingest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/streams"
)

// TestHeadersAreBounded: who publishes empty payloads with headers of the largest size has the worker hold as little as who
// publishes payloads of that size.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int{"shared": 0, "exclusive": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Exclusive, r.opts.Partitions = partitions > 0, partitions
			r.provision()
			const n, batchBytes, headerBytes = 200, 256 << 10, 60 << 10 // a stream takes no headers over 64 KiB
			for range n {
				m := &nats.Msg{Subject: "ingest.web.0", Header: nats.Header{"Much": {strings.Repeat("x", headerBytes)}}}
				if _, err := r.js.PublishMsg(r.ctx(), m); err != nil {
					t.Fatal(err)
				}
			}
			seen := &records{}
			run := r.prepare(hostDevice(t), streams.Config{BatchBytes: batchBytes, Observer: seen})
			budget := run.worker.budget.left
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
			if left := run.worker.budget.left; left != budget {
				t.Errorf("%d bytes are left of the budget, and were %d", left, budget)
			}
		})
	}
}
