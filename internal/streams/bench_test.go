package streams_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
	"millrace/internal/streams"
)

// benchDevices opens the host device on all cores and every GPU, by name.
func benchDevices(b *testing.B) map[string]device.Device {
	devices := map[string]device.Device{}
	h, err := host.Open(host.Options{Kernels: operator.HostKernels(), MemoryLimit: 4 << 30, HostMemoryLimit: 4 << 30})
	if err != nil {
		b.Fatal(err)
	}
	devices["host"] = h
	library := os.Getenv("MILLRACE_KERNELS")
	gpus, err := cuda.List(library)
	if err != nil {
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			b.Fatalf("no GPU, and MILLRACE_REQUIRE_GPU=1: %v", err)
		}
		b.Logf("NO GPU, SO NO FIGURES OF ONE: %v", err)
	}
	if len(gpus) > 0 {
		g, err := cuda.Open(cuda.Options{Library: library, Ordinal: gpus[0].Ordinal})
		if err != nil {
			b.Fatal(err)
		}
		devices["cuda"] = g
	}
	b.Cleanup(func() {
		for _, d := range devices {
			if err := d.Close(); err != nil {
				b.Error(err)
			}
		}
	})
	return devices
}

// BenchmarkOperators measures each operator on each device over batches of 2 KiB documents: `kernel` is the
// kernel alone, by device events with nothing beside it; `pipeline` is the whole way from Append to Release
// on four lanes with as many fillers.
//
//	go test ./internal/streams -run xxx -bench Operators
func BenchmarkOperators(b *testing.B) {
	devices := benchDevices(b)
	for _, spec := range []string{"minhash?k=24&hashes=128", "crc32c", "crc32c,minhash"} {
		for _, name := range []string{"host", "cuda"} {
			d := devices[name]
			if d == nil {
				continue
			}
			batch := 16 << 20
			if name == "host" {
				batch = 1 << 20 // a CPU needs seconds for more
			}
			b.Run(spec+"/"+name+"/kernel", func(b *testing.B) { benchKernel(b, d, spec, documents(batch)) })
			b.Run(spec+"/"+name+"/pipeline", func(b *testing.B) { benchPipeline(b, d, spec, batch) })
		}
	}
}

// BenchmarkRagged measures the kernel alone over 16 MiB in 8192 payloads: of one size, of sizes drawn log-normal
// with one payload of a megabyte among them, and with half of them empty. A kernel that gave each payload to a
// block would wait for the longest.
//
//	go test ./internal/streams -run xxx -bench Ragged
func BenchmarkRagged(b *testing.B) {
	d := benchDevices(b)["cuda"]
	if d == nil {
		b.Skip("SKIPPED: NO GPU, AND THE SHAPE OF A BATCH MATTERS THERE")
	}
	for _, spec := range []string{"minhash?k=24&hashes=128", "crc32c"} {
		for _, shape := range []struct {
			name  string
			sizes func() []int
		}{{"uniform", uniformSizes}, {"ragged", raggedSizes}, {"half-empty", halfEmptySizes}} {
			b.Run(spec+"/"+shape.name, func(b *testing.B) { benchKernel(b, d, spec, documentsOf(shape.sizes())) })
		}
	}
}

const (
	raggedPayloads = 8192
	raggedBytes    = 16 << 20
)

func uniformSizes() []int {
	sizes := make([]int, raggedPayloads)
	for i := range sizes {
		sizes[i] = raggedBytes / raggedPayloads
	}
	return sizes
}

func raggedSizes() []int {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	draws := make([]float64, raggedPayloads-1)
	sum := 0.0
	for i := range draws {
		draws[i] = math.Exp(1.3 * r.NormFloat64())
		sum += draws[i]
	}
	sizes := []int{1 << 20}
	left := raggedBytes - sizes[0]
	for _, x := range draws {
		sizes = append(sizes, int(x/sum*float64(left)))
	}
	r.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

func halfEmptySizes() []int {
	sizes := make([]int, raggedPayloads)
	for i := range sizes {
		sizes[i] = i % 2 * 2 * raggedBytes / raggedPayloads
	}
	return sizes
}

const documentBytes = 2 << 10

func benchPipe(b *testing.B, d device.Device, spec string, docs [][]byte, s streams.Schedule) *streams.Pipeline {
	p, err := streams.New(d, streams.Config{
		Lanes: 4, BatchBytes: totalBytes(docs), BatchPayloads: len(docs), ScratchLimit: 1 << 30,
		Operators: operators(b, spec), Schedule: s,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	return p
}

// documents fill a batch with documents of documentBytes.
func documents(batch int) [][]byte {
	sizes := make([]int, batch/documentBytes)
	for i := range sizes {
		sizes[i] = documentBytes
	}
	return documentsOf(sizes)
}

// documentsOf are fresh random ASCII texts of those sizes: a character, and so a shingle, for each byte, which
// is the most that minhash can have to do.
func documentsOf(sizes []int) [][]byte {
	seed := uint64(time.Now().UnixNano())
	docs := make([][]byte, len(sizes))
	for i, size := range sizes {
		docs[i] = payloads.Random(seed+uint64(i), size)
		for at := range docs[i] {
			docs[i][at] &= 0x7f
		}
	}
	return docs
}

func totalBytes(docs [][]byte) (n int) {
	for _, d := range docs {
		n += len(d)
	}
	return n
}

func fillBatch(b *testing.B, p *streams.Pipeline, docs [][]byte) *streams.Batch {
	batch, err := p.Acquire(context.Background())
	if err != nil {
		b.Error(err)
		return nil
	}
	for _, d := range docs {
		batch.Append(d)
	}
	return batch
}

func benchKernel(b *testing.B, d device.Device, spec string, docs [][]byte) {
	p := benchPipe(b, d, spec, docs, streams.Serial)
	b.SetBytes(int64(totalBytes(docs)))
	var took []time.Duration
	round := func() time.Duration {
		if err := fillBatch(b, p, docs).Submit(streams.ClosedByBytes); err != nil {
			b.Fatal(err)
		}
		done := <-p.Completed()
		defer done.Release()
		if done.Err() != nil {
			b.Fatal(done.Err())
		}
		return done.Record().Stages[streams.Compute].Duration()
	}
	round()
	for b.Loop() {
		took = append(took, round())
	}
	slices.Sort(took)
	median := took[len(took)/2]
	b.ReportMetric(float64(totalBytes(docs))/median.Seconds()/1e9, "kernel-GB/s")
	b.ReportMetric(float64(median.Microseconds()), "kernel-us/batch")
}

func benchPipeline(b *testing.B, d device.Device, spec string, batch int) {
	docs := documents(batch)
	p := benchPipe(b, d, spec, docs, streams.Overlapped)
	b.SetBytes(int64(batch))
	run := func(n int64) {
		var left atomic.Int64
		left.Store(n)
		var fillers sync.WaitGroup
		for range 4 {
			fillers.Go(func() {
				for left.Add(-1) >= 0 {
					if err := fillBatch(b, p, docs).Submit(streams.ClosedByBytes); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		for range n {
			done := <-p.Completed()
			if done.Err() != nil {
				b.Error(done.Err())
			}
			done.Release()
		}
		fillers.Wait()
	}
	run(int64(p.Slots()))
	before, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	run(int64(b.N))
	b.StopTimer()
	after, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	busy := after.Busy - before.Busy
	b.ReportMetric(100*float64(after.Overlap-before.Overlap)/float64(max(busy, 1)), "overlap-%")
	b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}
