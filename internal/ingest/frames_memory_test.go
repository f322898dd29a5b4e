package ingest

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestBombsStayWithinTheMemory decompresses every message to many times the memory limit. With one device, the
// decompressed bytes exceed the limit by at most one frame.
func TestBombsStayWithinTheMemory(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		var err error
		if r.opts.Operators, err = operator.ParseList("crc32c"); err != nil {
			t.Fatal(err)
		}
		r.opts.Decompress = compression.Zstd
		const n, size = 10, 1 << 20
		var inputs []framed
		for seed := range uint64(n) {
			in := lines(slices.Repeat([][]byte{bytes.Repeat([]byte{byte('a' + seed%26)}, 15000)}, size/15000)...)
			in.body = new(compression.Compressor).Append(nil, compression.Zstd, in.body)
			inputs = append(inputs, in)
		}
		r.provision()
		r.publishFrames(inputs)
		run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 16, BatchBytes: 256 << 10})
		const limit = 3 << 19
		run.worker.pool.SetLimit(limit)
		var maximum atomic.Int64
		stop, sample := make(chan struct{}), time.NewTicker(100*time.Microsecond)
		defer sample.Stop()
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-sample.C:
					maximum.Store(max(maximum.Load(), run.worker.Memory().Used))
				}
			}
		}()
		run.start()
		until(t, "every input is settled", r.allSettled)
		close(stop)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		if bound := int64(limit + size + size/4); maximum.Load() > bound {
			t.Errorf("up to %d bytes were in use, and %d are allowed with one frame more", maximum.Load(), bound)
		}
		r.wantFrames(inputs)
	})
}

// TestFramesThroughTheSmallestBudget lets a worker hold one delivery at a time.
func TestFramesThroughTheSmallestBudget(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Decompress = compression.Auto
		var inputs []framed
		for seed := range uint64(50) {
			in := manyLines(seed, 1+int(seed)%50)
			if seed%2 == 0 {
				in.body = new(compression.Compressor).Append(nil, compression.Zstd, in.body)
				in.header = nats.Header{"Content-Encoding": {"zstd"}}
			}
			inputs = append(inputs, in)
		}
		inputs[30] = framed{body: []byte("no zstd"), header: nats.Header{"Content-Encoding": {"zstd"}}}
		inputs[40] = manyLines(40, 20, 7)
		r.provision()
		r.publishFrames(inputs)
		run := r.prepare(openHost(t, pickyKernels()), streams.Options{BatchPayloads: 16})
		run.worker.pool.SetLimit(1)
		run.start()
		until(t, "every input is settled", r.allSettled)
		if err := run.drain(); err != nil {
			t.Error(err)
		}
		got, dead := r.stored("results.>"), r.deadLetters()
		for i, in := range inputs {
			if i != 30 {
				r.wantFrame(uint64(i+1), in, got[uint64(i+1)])
				r.wantRecordLetters(uint64(i+1), in, dead[uint64(i+1)])
			}
		}
		if len(dead[31]) != 1 || len(got[31]) != 0 {
			t.Errorf("the frame that is no zstd has %d dead letters and %d results, want 1 and 0", len(dead[31]), len(got[31]))
		}
	})
}
