package ingest

import (
	"iter"
	"runtime"
	"sync"
	"testing"
	"weak"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// headerKeeper tracks headers of inputs without preventing their collection.
type headerKeeper struct {
	mu   sync.Mutex
	seen []weak.Pointer[string]
}

func (k *headerKeeper) BatchEnded(_ *inflight.Record, payloads iter.Seq[inflight.Payload]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range payloads {
		k.seen = append(k.seen, weak.Make(&p.Header["Trace"][0]))
	}
}

func (k *headerKeeper) alive() (n int) {
	runtime.GC()
	for _, w := range k.seen {
		if w.Value() != nil {
			n++
		}
	}
	return n
}

// TestNothingOfABatchStays shows that the worker frees all messages after it has settled its inputs, although it
// keeps memory for later batches. A result shares its input's headers, so the headers show whether either is still in
// memory.
func TestNothingOfABatchStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	const n = 500
	r.publish(n, document)
	keeper := &headerKeeper{}
	r.opts.Batches = keeper
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.await(t, inflight.Published, n)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	run.nc.Close()
	if len(keeper.seen) != n {
		t.Errorf("%d headers were seen, want %d", len(keeper.seen), n)
	}
	until(t, "no header is in memory", func() bool { return keeper.alive() == 0 })
	runtime.KeepAlive(run.worker)
}
