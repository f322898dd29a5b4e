//go:build cgo

package cuda_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// stateBench is a state, and a stream of records that fills half of the slots of the state's young generation.
type stateBench struct {
	device.State
	size     device.StateSize
	bands    int
	random   *rand.Rand
	sequence uint64 // sequence of the last record

	positions []device.Position
	keys      []byte
	log       [][]byte // log of all batches, if keepsLog is true
	keepsLog  bool
}

func newStateBench(b *testing.B, dev device.Device, keepsLog bool) *stateBench {
	b.Helper()
	s := newStateStream()
	s.State, s.keepsLog = s.another(b, dev), keepsLog
	s.fill(func() { s.apply(b) })
	return s
}

// newStateStream returns a stream of records without a state.
func newStateStream() *stateBench {
	return &stateBench{
		size: device.StateSize{Records: 1 << 21, Batch: benchPayloads}, bands: 20, random: rand.New(rand.NewPCG(1, 2)),
		positions: make([]device.Position, benchPayloads), keys: make([]byte, benchPayloads*20*neardup.KeyBytes),
	}
}

// fill makes batches that use half of a table's slots. A table has 5/4 slots per key.
func (s *stateBench) fill(apply func()) {
	for range s.size.Records * 5 / 8 / benchPayloads {
		s.next(0)
		apply()
	}
}

// another returns an empty state.
func (s *stateBench) another(b *testing.B, dev device.Device) device.State {
	b.Helper()
	p := neardup.Parameters{Bands: s.bands, Rows: 13, K: 24, Seed: 42}
	state, err := dev.NewState("neardup", stateBlock(p), s.size)
	check(b, err)
	b.Cleanup(func() { check(b, state.Close()) })
	return state
}

// next makes a batch. near is the share of records that copy three quarters of the keys of an earlier record.
func (s *stateBench) next(near float64) {
	stride := s.bands * neardup.KeyBytes
	for i := range s.positions {
		s.sequence++
		s.positions[i].Sequence = s.sequence
		own := s.keys[i*stride:][:stride]
		for band := range s.bands {
			binary.LittleEndian.PutUint64(own[band*neardup.KeyBytes:], s.random.Uint64()>>5<<5|uint64(band+1)) // 5 bits contain one of 20 bands
		}
		if i > 0 && s.random.Float64() < near {
			copy(own[:stride*3/4], s.keys[s.random.IntN(i)*stride:])
		}
	}
}

func (s *stateBench) apply(b *testing.B) device.Decisions {
	b.Helper()
	d, err := s.Apply(s.positions, s.keys)
	check(b, err)
	if s.keepsLog {
		s.log, err = d.AppendLog(s.log, 0, len(s.positions), 1<<20)
		check(b, err)
	}
	return d
}

// BenchmarkState measures the calls for a batch of 8,192 records with 20 bands: Apply, all values, and the log. 30% of the records are
// near-duplicates. In the second part, other streams compute signatures all the time. It reports medians and the 99th percentile of Apply.
//
//	go test ./internal/device/cuda -run xxx -bench 'State$' -benchtime 500x
func BenchmarkState(b *testing.B) {
	dev := benchGPU(b)
	for _, busy := range []bool{false, true} {
		name := map[bool]string{false: "idle", true: "busy"}[busy]
		b.Run(name, func(b *testing.B) {
			s := newStateBench(b, dev, false)
			s.next(0.3)
			if busy {
				defer compute(b, dev, 2)()
			}
			var apply, values, log []time.Duration
			var value []byte
			var entries [][]byte
			for b.Loop() {
				began := time.Now()
				d := s.apply(b)
				applied := time.Now()
				for i := range s.positions {
					value = d.AppendValue(value[:0], i)
				}
				valued := time.Now()
				var err error
				entries, err = d.AppendLog(entries[:0], 0, len(s.positions), 1<<20)
				check(b, err)
				apply, values, log = append(apply, applied.Sub(began)), append(values, valued.Sub(applied)), append(log, time.Since(valued))
				check(b, s.Undo())
			}
			for unit, took := range map[string][]time.Duration{"apply": apply, "values": values, "log": log} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "us-"+unit)
			}
			b.ReportMetric(float64(apply[len(apply)*99/100].Nanoseconds())/1e3, "us-apply-p99")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkStateParts divides the Apply of BenchmarkState into four parts: copying positions and keys into pinned memory, enqueuing the
// kernels, waiting for the GPU, and reading the results. Apply spends the remaining time on checking positions and keys. The benchmark
// reports medians.
//
//	go test ./internal/device/cuda -run xxx -bench StateParts -benchtime 500x
func BenchmarkStateParts(b *testing.B) {
	dev := benchGPU(b)
	s := newStateStream()
	size := cuda.NearDuplicateParameters{Bands: s.bands, Records: s.size.Records, Batch: benchPayloads}
	stream, err := dev.NewStream("parts")
	check(b, err)
	index, err := cuda.NewNearDuplicates(dev, stream, size)
	check(b, err)
	var memory [3]device.HostBuffer
	var mapped [3]device.Memory
	for i, n := range []int{16 * benchPayloads, len(s.keys), size.ResultBytes(benchPayloads)} {
		memory[i], err = dev.AllocHost(n)
		check(b, err)
		mapped[i], err = dev.(device.Mapper).Map(memory[i])
		check(b, err)
	}
	b.Cleanup(func() {
		check(b, errors.Join(index.Close(), stream.Close(), dev.FreeHost(memory[0]), dev.FreeHost(memory[1]), dev.FreeHost(memory[2])))
	})
	batch := cuda.NearDuplicateBatch{Records: benchPayloads, Positions: mapped[0], Keys: mapped[1], Result: mapped[2]}
	copyIn := func() {
		for i, p := range s.positions {
			binary.LittleEndian.PutUint64(memory[0].Bytes()[16*i:], p.Sequence)
		}
		copy(memory[1].Bytes(), s.keys)
	}
	s.fill(func() {
		copyIn()
		check(b, errors.Join(index.Apply(batch), stream.Synchronize()))
	})
	s.next(0.3)
	names := []string{"us-copy", "us-enqueue", "us-wait", "us-read"}
	took := make([][]time.Duration, len(names))
	var r neardup.Result
	for b.Loop() {
		at := [5]time.Time{time.Now()}
		copyIn()
		at[1] = time.Now()
		check(b, index.Apply(batch))
		at[2] = time.Now()
		check(b, stream.Synchronize())
		at[3] = time.Now()
		for i := range s.positions {
			size.Read(memory[2].Bytes(), benchPayloads, i, &r)
		}
		at[4] = time.Now()
		for i := range took {
			took[i] = append(took[i], at[i+1].Sub(at[i]))
		}
		check(b, errors.Join(index.Undo(), stream.Synchronize()))
	}
	for i, name := range names {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds())/1e3, name)
	}
	b.ReportMetric(0, "ns/op")
}

// compute runs a minhash kernel over 16 MiB repeatedly on a number of streams, until stop is called.
func compute(b *testing.B, dev device.Device, streams int) (stop func()) {
	b.Helper()
	op, err := operator.Parse("minhash?k=24&hashes=260")
	check(b, err)
	k, err := dev.Kernel("minhash", op.Params())
	check(b, err)
	var running sync.WaitGroup
	over := make(chan struct{})
	for range streams {
		run := newBenchBatch(b, dev, uniformSizes()).bind(b, k)
		running.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if run.stream.Launch(run.kernel, run.args) != nil || run.stream.Synchronize() != nil {
					b.Error("the minhash kernel failed")
					return
				}
			}
		})
	}
	return func() {
		close(over)
		running.Wait()
		check(b, k.Close())
	}
}

// BenchmarkReplayState replays the log of 1.3 million records into an empty state. Log entries have up to 1 MiB.
func BenchmarkReplayState(b *testing.B) {
	dev := benchGPU(b)
	s := newStateBench(b, dev, true)
	records, _ := s.Applied()
	var took []time.Duration
	for b.Loop() {
		state := s.another(b, dev)
		began := time.Now()
		for _, entry := range s.log {
			check(b, state.Replay(entry))
		}
		took = append(took, time.Since(began))
		check(b, state.Close())
	}
	slices.Sort(took)
	b.ReportMetric(float64(records)/took[len(took)/2].Seconds()/1e6, "Mrecords/s")
	b.ReportMetric(0, "ns/op")
}
