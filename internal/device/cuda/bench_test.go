package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator"
)

const (
	benchBytes    = 16 << 20
	benchPayloads = 8192
)

// BenchmarkVariants measures minhash's kernels alone, with device events, over 16 MiB of random ASCII in 8192 payloads. The
// payloads have 2 KiB each, or log-normal sizes with one payload of a hundred times the median. The signatures have 128 or
// 260 values. Before the measurement, every variant must give the same bytes as the plain kernel.
//
//	go test ./internal/device/cuda -run xxx -bench Variants
func BenchmarkVariants(b *testing.B) {
	dev := benchGPU(b)
	for _, shape := range []struct {
		name  string
		sizes []int
	}{{"uniform", uniformSizes()}, {"ragged", raggedSizes()}} {
		in := newBenchBatch(b, dev, shape.sizes)
		for _, hashes := range []int{128, 260} {
			in.compareVariants(b, fmt.Sprintf("%s/%d", shape.name, hashes), fmt.Sprintf("minhash?k=24&hashes=%d", hashes))
		}
	}
}

func (in *benchBatch) compareVariants(b *testing.B, prefix, spec string) {
	b.Helper()
	op, err := operator.Parse(spec)
	check(b, err)
	var want []byte
	for _, name := range []string{"minhash:plain", "minhash:warp-specialized", "minhash:cluster"} {
		b.Run(prefix+"/"+name, func(b *testing.B) {
			k, err := in.dev.Kernel(name, op.Params())
			if errors.Is(err, device.ErrUnavailable) {
				b.Skipf("SKIPPED: THE GPU DOES NOT SUPPORT THIS VARIANT: %v", err)
			}
			check(b, err)
			defer func() { check(b, k.Close()) }()
			run := in.bind(b, k)
			run.once(b)
			got := run.results(b)
			if want == nil {
				want = got // the plain kernel runs first
			}
			if !bytes.Equal(got, want) {
				b.Fatal("the results differ from the plain kernel's")
			}
			run.measure(b)
		})
	}
}

func benchGPU(b *testing.B) device.Device {
	b.Helper()
	all, err := cuda.List(builtLibrary())
	if err != nil || len(all) == 0 {
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			b.Fatalf("no GPU, and MILLRACE_REQUIRE_GPU=1: %v", err)
		}
		b.Skipf("SKIPPED: NO GPU OR NO LIBMILLRACE.SO HERE: %v", err)
	}
	dev, err := cuda.Open(cuda.Options{Library: builtLibrary()})
	check(b, err)
	b.Cleanup(func() { check(b, dev.Close()) })
	return dev
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func uniformSizes() []int {
	return slices.Repeat([]int{benchBytes / benchPayloads}, benchPayloads)
}

// raggedSizes returns log-normal sizes (sigma 1.3) that fill the batch. One of them is a hundred times the median.
func raggedSizes() []int {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	draws := make([]float64, benchPayloads)
	draws[0] = 100 // the median of all other draws is 1
	sum := draws[0]
	for i := 1; i < len(draws); i++ {
		draws[i] = math.Exp(1.3 * r.NormFloat64())
		sum += draws[i]
	}
	sizes := make([]int, len(draws))
	for i, x := range draws {
		sizes[i] = int(x / sum * benchBytes)
	}
	r.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

type benchBatch struct {
	dev           device.Device
	stream        device.Stream
	begin, end    device.Event
	shape         device.Shape
	rows, offsets device.Memory
}

// newBenchBatch creates rows of these sizes and copies them to the GPU. Everything is freed when b ends.
func newBenchBatch(b *testing.B, dev device.Device, sizes []int) *benchBatch {
	b.Helper()
	in := &benchBatch{dev: dev}
	var err error
	in.stream, err = dev.NewStream("bench")
	check(b, err)
	b.Cleanup(func() { check(b, in.stream.Close()) })
	in.begin, in.end = timedEvent(b, dev), timedEvent(b, dev)
	seed := uint64(time.Now().UnixNano())
	var data []byte
	table := make([]byte, 4, 4*(len(sizes)+1))
	for i, size := range sizes {
		for _, c := range corpus.Bytes(seed+uint64(i), size) {
			data = append(data, c&0x7f) // one character per byte, and one shingle per character
		}
		table = binary.LittleEndian.AppendUint32(table, uint32(len(data)))
	}
	in.shape = device.Shape{Rows: len(sizes), Bytes: len(data), Longest: slices.Max(sizes)}
	in.rows, in.offsets = in.copyIn(b, data), in.copyIn(b, table)
	return in
}

func timedEvent(b *testing.B, dev device.Device) device.Event {
	b.Helper()
	e, err := dev.NewEvent(device.Timed)
	check(b, err)
	b.Cleanup(func() { check(b, e.Close()) })
	return e
}

func (in *benchBatch) memory(b *testing.B, length int) device.Memory {
	b.Helper()
	m, err := in.dev.Alloc(length)
	check(b, err)
	b.Cleanup(func() { check(b, in.dev.Free(m)) })
	return m
}

func (in *benchBatch) host(b *testing.B, length int) device.HostBuffer {
	b.Helper()
	h, err := in.dev.AllocHost(length)
	check(b, err)
	b.Cleanup(func() { check(b, in.dev.FreeHost(h)) })
	return h
}

func (in *benchBatch) copyIn(b *testing.B, data []byte) device.Memory {
	b.Helper()
	m, h := in.memory(b, len(data)), in.host(b, len(data))
	copy(h.Bytes(), data)
	check(b, in.stream.CopyIn(m, h))
	check(b, in.stream.Synchronize())
	return m
}

type benchRun struct {
	*benchBatch
	kernel device.Kernel
	args   device.LaunchArgs
}

func (in *benchBatch) bind(b *testing.B, k device.Kernel) *benchRun {
	b.Helper()
	needs := k.Needs(in.shape)
	return &benchRun{benchBatch: in, kernel: k, args: device.LaunchArgs{
		Shape: in.shape, Rows: in.rows, Offsets: in.offsets,
		Scratch: in.memory(b, needs.Scratch), Result: in.memory(b, needs.Result),
	}}
}

// once launches the kernel once and returns the time that it takes on the device.
func (r *benchRun) once(b *testing.B) time.Duration {
	b.Helper()
	check(b, r.stream.Record(r.begin))
	check(b, r.stream.Launch(r.kernel, r.args))
	check(b, r.stream.Record(r.end))
	check(b, r.stream.Synchronize())
	begin, err := r.begin.Time()
	check(b, err)
	end, err := r.end.Time()
	check(b, err)
	return end - begin
}

func (r *benchRun) results(b *testing.B) []byte {
	b.Helper()
	h := r.host(b, r.args.Result.Bytes)
	check(b, r.stream.CopyOut(h, r.args.Result))
	check(b, r.stream.Synchronize())
	return bytes.Clone(h.Bytes())
}

// measure reports the median over b.N launches.
func (r *benchRun) measure(b *testing.B) {
	b.Helper()
	b.SetBytes(int64(r.shape.Bytes))
	var took []time.Duration
	for b.Loop() {
		took = append(took, r.once(b))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	b.ReportMetric(float64(r.shape.Bytes)/median.Seconds()/1e9, "kernel-GB/s")
	b.ReportMetric(float64(median.Nanoseconds())/1e3, "kernel-us")
}
