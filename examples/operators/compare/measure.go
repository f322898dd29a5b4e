package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/corpus"
)

// records is a ragged batch of records of one size, with the text that `worker operator test` uses for its
// measurements.
type records struct {
	data    []byte
	offsets []uint32
}

// newRecords returns records of size bytes each, with a total size of at most bytes.
func newRecords(size, bytes int) *records {
	var rows [][]byte
	for seed := range 64 {
		rows = append(rows, corpus.Text(uint64(seed+1), size))
	}
	data, offsets := corpus.Pack(slices.Repeat(rows, bytes/size/len(rows)))
	return &records{data: data, offsets: offsets}
}

func (r *records) rows() int { return len(r.offsets) - 1 }

func (r *records) record(i int) []byte { return r.data[r.offsets[i]:r.offsets[i+1]:r.offsets[i+1]] }

// perRecord returns an implementation's run function that calls one for each record.
func perRecord(one func(record []byte) uint64) func(*records, []uint64, int, int) {
	return func(c *records, out []uint64, first, end int) {
		for i := first; i < end; i++ {
			out[i] = one(c.record(i))
		}
	}
}

// measure returns the median throughput of 5 runs in GB/s, after a warm-up run. The given number of goroutines process pieces of
// the corpus concurrently.
func measure(c *records, i implementation, out []uint64, goroutines int) float64 {
	const runs, pieceBytes = 5, 256 << 10
	piece := max(1, pieceBytes*c.rows()/len(c.data))
	var times []time.Duration
	for range runs + 1 {
		var next atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range goroutines {
			all.Go(func() {
				for {
					first := int(next.Add(int64(piece))) - piece
					if first >= c.rows() {
						return
					}
					i.run(c, out, first, min(first+piece, c.rows()))
				}
			})
		}
		all.Wait()
		times = append(times, time.Since(start))
	}
	times = times[1:]
	slices.Sort(times)
	return float64(len(c.data)) / times[runs/2].Seconds() / 1e9
}

func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU"
	}
	for line := range bytes.Lines(text) {
		if name, ok := strings.CutPrefix(string(line), "model name"); ok {
			return strings.Trim(name, "\t :\n")
		}
	}
	return "unknown CPU"
}
