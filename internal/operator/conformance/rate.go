package conformance

import (
	"context"
	"slices"
	"time"

	"millrace/internal/operator/payloads"
)

// Bounds of a measurement.
const (
	rateBatch = 8 << 20 // bytes of records
	rateRuns  = 9
	rateTime  = 3 * time.Second // after which a measurement ends with fewer runs
)

// Rate returns the throughput of the kernel alone for records of that many bytes of text, in bytes per second: the median of several runs
// on the device's clock, after one that isn't counted. The batch has 8 MiB, or less if the operator's results would need too much memory.
func (r *Runner) Rate(ctx context.Context, recordBytes int) (float64, error) {
	text := payloads.Text(1, rateBatch)
	var rows [][]byte
	for at := 0; at+recordBytes <= len(text); at += recordBytes {
		rows = append(rows, text[at:at+recordBytes])
	}
	t := tester{Runner: r}
	for len(rows) > 1 && t.memory(rows) > mostMemory {
		rows = rows[:len(rows)/2]
	}
	shape := shapeOf(rows)
	var times []time.Duration
	for start := time.Now(); len(times) <= rateRuns && (len(times) < 2 || time.Since(start) < rateTime); {
		one, err := r.timed(ctx, rows)
		if err != nil {
			return 0, err
		}
		times = append(times, one)
	}
	times = times[1:]
	slices.Sort(times)
	return float64(shape.Bytes) / max(times[len(times)/2], 1).Seconds(), nil
}

// timed runs a batch and returns the time of its kernel.
func (r *Runner) timed(ctx context.Context, rows [][]byte) (time.Duration, error) {
	if _, err := r.run(ctx, rows, contents{}); err != nil {
		return 0, err
	}
	begin, err := r.begin.Time()
	if err != nil {
		return 0, err
	}
	end, err := r.end.Time()
	return end - begin, err
}
