package neardup

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"millrace/internal/device"
)

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// randomKeys fills keys with the keys of random records. near is the share of records that have most keys of an earlier record.
func randomKeys(random *rand.Rand, p Parameters, keys []uint64, near float64) {
	for i := range keys {
		keys[i] = random.Uint64()>>p.bandBits()<<p.bandBits() | uint64(i%p.Bands+1)
	}
	for r := 1; r < len(keys)/p.Bands; r++ {
		if random.Float64() < near {
			source := random.IntN(r)
			copy(keys[r*p.Bands:][:p.Bands*3/4], keys[source*p.Bands:])
		}
	}
}

// BenchmarkApply applies and undoes one batch of 8,192 records. Half of the slots of the young generation are in use, by 5/8 of its
// records. 30 % of the records are near-duplicates in the same batch.
func BenchmarkApply(b *testing.B) {
	const batch = 8192
	for _, records := range []int{32 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKi", records>>10), func(b *testing.B) {
			p := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: records}
			x, err := New(p, batch)
			if err != nil {
				b.Fatal(err)
			}
			random := newRandom()
			keys := make([]uint64, batch*p.Bands)
			positions := make([]Position, batch)
			next := uint64(0)
			apply := func(near float64) {
				randomKeys(random, p, keys, near)
				for i := range positions {
					next++
					positions[i].Sequence = next
				}
				if _, err := x.Apply(positions, keys); err != nil {
					b.Fatal(err)
				}
			}
			for range records * 5 / 8 / batch {
				apply(0)
			}
			apply(0.3)
			var logBytes int
			entries, err := x.AppendLog(nil, 0, batch, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range entries {
				logBytes += len(e)
			}
			indexBytes, err := Bytes(p, batch)
			if err != nil {
				b.Fatal(err)
			}
			cpu := time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				if err := x.Undo(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				cpu -= cpuTime()
				if _, err := x.Apply(positions, keys); err != nil {
					b.Fatal(err)
				}
				cpu += cpuTime()
			}
			b.ReportMetric(float64(cpu)/float64(batch*b.N), "cpu-ns/record")
			b.ReportMetric(batch*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(logBytes)/batch, "logB/record")
			b.ReportMetric(float64(indexBytes)/float64(2*records), "indexB/record")
		})
	}
}

// BenchmarkAppendLog writes the log of a batch of 8,192 records without near-duplicates, in entries of 1 MiB.
func BenchmarkAppendLog(b *testing.B) {
	const batch = 8192
	p := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 32 << 10}
	x, err := New(p, batch)
	if err != nil {
		b.Fatal(err)
	}
	keys, positions := make([]uint64, batch*p.Bands), make([]Position, batch)
	randomKeys(newRandom(), p, keys, 0)
	for i := range positions {
		positions[i].Sequence = uint64(i + 1)
	}
	if _, err := x.Apply(positions, keys); err != nil {
		b.Fatal(err)
	}
	var entries [][]byte
	for b.Loop() {
		if entries, err = x.AppendLog(entries[:0], 0, batch, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
	size := 0
	for _, e := range entries {
		size += len(e)
	}
	b.SetBytes(int64(size))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/record")
}

// BenchmarkReplay replays the log of a generation without near-duplicates, in entries of 1 MiB. It measures the replay on the CPU, and the
// part of a device's replay before its tables.
func BenchmarkReplay(b *testing.B) {
	const batch = 8192
	for _, records := range []int{32 << 10, 1 << 20} {
		p := Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: records}
		var entries [][]byte
		size := 0
		for name, state := range map[string]func() (device.State, error){
			"cpu": func() (device.State, error) { return NewState(p, batch) },
			"device": func() (device.State, error) {
				return NewDeviceState(p, batch, noTables{inserts: newInserts(p, batch)}), nil
			},
		} {
			b.Run(fmt.Sprintf("%s/%dKi", name, records>>10), func(b *testing.B) {
				if entries == nil {
					entries = randomLog(b, p, batch)
					for _, e := range entries {
						size += len(e)
					}
				}
				b.SetBytes(int64(size))
				cpu := time.Duration(0)
				for b.Loop() {
					b.StopTimer()
					s, err := state()
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					cpu -= cpuTime()
					for _, e := range entries {
						if err := s.Replay(e); err != nil {
							b.Fatal(err)
						}
					}
					cpu += cpuTime()
				}
				b.ReportMetric(float64(cpu)/float64(records*b.N), "cpu-ns/record")
				b.ReportMetric(float64(records*b.N)/b.Elapsed().Seconds(), "records/s")
				b.ReportMetric(float64(size)/float64(records), "logB/record")
			})
		}
	}
}

// cpuTime returns the processor time of this process. It depends less on other processes than wall time does.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // Getrusage can't fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// noTables implements Tables without doing anything, to measure only the code around the tables.
type noTables struct {
	Tables
	inserts *Inserts
}

func (t noTables) Inserts() *Inserts   { return t.inserts }
func (noTables) Replay(*Inserts) error { return nil }

// randomLog returns the log of a generation without near-duplicates.
func randomLog(b *testing.B, p Parameters, batch int) (entries [][]byte) {
	x, err := New(p, batch)
	if err != nil {
		b.Fatal(err)
	}
	random := newRandom()
	keys := make([]uint64, batch*p.Bands)
	positions := make([]Position, batch)
	for i := range p.Records / batch {
		randomKeys(random, p, keys, 0)
		for r := range positions {
			positions[r].Sequence = uint64(i*batch + r + 1)
		}
		if _, err := x.Apply(positions, keys); err != nil {
			b.Fatal(err)
		}
		if entries, err = x.AppendLog(entries, 0, batch, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
	return entries
}

// BenchmarkKeys computes the keys of signatures.
func BenchmarkKeys(b *testing.B) {
	p := Parameters{Bands: 20, Rows: 13}
	signature := make([]uint32, p.Bands*p.Rows)
	var keys []uint64
	for b.Loop() {
		signature[0]++
		keys = p.AppendKeys(keys[:0], signature)
	}
}
