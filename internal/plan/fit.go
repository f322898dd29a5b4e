package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// Fitted is the model of a workload: see the package for what its figures mean.
type Fitted struct {
	Stages [streams.NumEngines]sim.Cost // of copy in, compute and copy out, alone on the device

	CopyShare      float64 // 0 to 1
	ComputeShare   float64 // 0 to 1
	Dispatch       time.Duration
	DispatchWithin time.Duration // part of each of the times in Stages, and not of Dispatch
	Host           time.Duration // a batch
	Completion     time.Duration
	Synchronize    time.Duration

	Assumptions []string // what the file did not tell, in whole sentences

	fitted []Row // whose seconds went into the model
	waits  waits
}

// Fit makes a model of a workload. host is the time that the host works on a submission; 0 takes what the workload
// has, or fits it. It fails only with ctx's error: where a workload lacks rows, the model has assumptions.
func Fit(ctx context.Context, w Workload, host time.Duration) (Fitted, error) {
	f := Fitted{CopyShare: 1, ComputeShare: 1}
	alone := f.fitStages(w)
	if host == 0 {
		host = w.Host
	}
	f.fitWaits(w, host)
	if !alone {
		return f, ctx.Err()
	}
	return f, f.fitPaces(ctx, w, host == 0)
}

func (f *Fitted) assume(format string, args ...any) {
	f.Assumptions = append(f.Assumptions, fmt.Sprintf(format, args...))
}

// fitStages fits the stages' costs to the least median of each size with one batch on the device at a time, and says
// whether there were such.
func (f *Fitted) fitStages(w Workload) (alone bool) {
	rows := slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool { return !r.timed() || !r.alone() })
	alone = len(rows) > 0
	if !alone {
		rows = slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool { return !r.timed() })
		f.assume("No stage times are of one batch alone on the device: how much several slow each other is in them, and with " +
			"fewer lanes they are shorter.")
	}
	for engine := range f.Stages {
		least := map[int]point{}
		for _, r := range rows {
			if p, known := least[r.Bytes]; !known || r.Stages[engine] < p.seconds {
				least[r.Bytes] = point{r.Bytes, r.Stages[engine], float64(max(r.Samples, 1))}
			}
		}
		var points []point
		for _, size := range w.sizes() { // in order, so that sums come out the same each time
			if p, known := least[size]; known {
				points = append(points, p)
			}
		}
		f.Stages[engine] = fitCost(points)
		if engine == 0 && len(points) == 1 {
			f.assume("All stage times are of batches of %d bytes: for other sizes a latency of 0 is taken, and the rate of this one.", points[0].bytes)
		}
	}
	return alone
}

// sum is what the stages of a batch take one after another, in seconds.
func (f *Fitted) sum(bytes int) (s float64) {
	for _, c := range f.Stages {
		s += timeOf(c, bytes).Seconds()
	}
	return s
}
