package plan

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// Fitted is the model of a workload. The package documentation explains its parameters.
type Fitted struct {
	Stages [streams.NumEngines]sim.Cost // copy in, compute and copy out, alone on the device

	CopyShare      float64 // 0 to 1
	ComputeShare   float64 // 0 to 1
	Dispatch       time.Duration
	DispatchWithin time.Duration // part of each time in Stages; not part of Dispatch
	Host           time.Duration // per batch
	Completion     time.Duration
	Synchronize    time.Duration

	Assumptions []string // assumptions made for data that the file did not contain, in whole sentences

	fitted []Row // rows whose seconds were used for the fit
	waits  waits
}

// Fit creates a model of a workload. The parameter host is the time that the host spends on a submission; 0 means the
// workload's value or, if it has none, a fitted value. Fit fails only with ctx's error. If the workload lacks rows, the
// model lists assumptions.
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

// fitStages fits the stages' costs to the smallest median of each batch size, using rows with one batch on the device
// at a time. It reports whether there were such rows.
func (f *Fitted) fitStages(w Workload) (alone bool) {
	rows := slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool { return !r.timed() || !r.alone() })
	alone = len(rows) > 0
	if !alone {
		rows = slices.DeleteFunc(slices.Clone(w.Rows), func(r Row) bool { return !r.timed() })
		f.assume("No stage times are of one batch alone on the device: they include how much several batches slow each other down, and " +
			"are shorter with fewer lanes.")
	}
	for engine := range f.Stages {
		least := map[int]point{}
		for _, r := range rows {
			if p, known := least[r.Bytes]; !known || r.Stages[engine] < p.seconds {
				least[r.Bytes] = point{r.Bytes, r.Stages[engine], float64(max(r.Samples, 1))}
			}
		}
		var points []point
		for _, size := range w.sizes() { // in a fixed order, so that the sums are reproducible
			if p, known := least[size]; known {
				points = append(points, p)
			}
		}
		f.Stages[engine] = fitCost(points)
		if engine == 0 && len(points) == 1 {
			f.assume("All stage times are of batches of %d bytes: other sizes are assumed to have the same rate and a latency of 0.", points[0].bytes)
		}
	}
	return alone
}

// sum returns the total duration of a batch's stages, in seconds.
func (f *Fitted) sum(bytes int) (s float64) {
	for _, c := range f.Stages {
		s += timeOf(c, bytes).Seconds()
	}
	return s
}
