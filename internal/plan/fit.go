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
	f.fitLatencies(w, host)
	if !alone {
		return f, ctx.Err()
	}
	return f, f.fitShares(ctx, w, host == 0 && w.Host == 0)
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

// waits is what the host adds to a batch whose stages nothing hides, in seconds. One that no row shows is negative.
type waits struct {
	serial float64 // submission, three synchronizations and the completion
	single float64 // on one lane with one buffer: submission and completion
}

// synchronizations is how often the host waits for a stage of a serial batch.
const synchronizations = float64(streams.NumEngines)

// fitLatencies takes the latencies from rows in which nothing hides them: what such a row takes beyond its stages.
func (f *Fitted) fitLatencies(w Workload, host time.Duration) {
	gaps := f.beyond(w, 0, func(r Row) bool { return !r.serial() && r.Schedule.Buffers == 2 })
	if gaps < 0 {
		f.assume("No row has one lane with two buffers: streams are taken to go from stage to stage without a gap.")
	}
	gaps = max(gaps, 0)
	f.Dispatch = seconds(gaps / float64(streams.NumEngines))
	f.waits = waits{
		serial: f.beyond(w, gaps, Row.serial),
		single: f.beyond(w, gaps, func(r Row) bool { return !r.serial() && r.Schedule.Buffers == 1 }),
	}
	if host == 0 {
		host = w.Host
	}
	switch {
	case host == 0:
		host = f.likelyHost()
	case f.waits.single < 0 && f.waits.serial >= 0:
		f.assume("What the host adds to a serial batch beyond its submission is taken to be the same for its completion and each " +
			"of its three synchronizations.")
	}
	f.setHost(host)
}

// beyond is what rows of one lane take beyond their stages and gaps, in seconds, by least squares of the relative
// errors of their seconds, and at least 0; negative where there are none.
func (f *Fitted) beyond(w Workload, gaps float64, of func(Row) bool) float64 {
	var rest, weights float64
	for _, r := range w.Rows {
		if r.alone() && r.Seconds > 0 && of(r) {
			weight := 1 / (r.Seconds * r.Seconds)
			rest += weight * (r.Seconds - f.sum(r.Bytes) - gaps)
			weights += weight
		}
	}
	if weights == 0 {
		return -1
	}
	return max(rest/weights, 0)
}

// likelyHost is where the search for the host's time on a submission starts.
func (f *Fitted) likelyHost() time.Duration {
	switch {
	case f.waits.single >= 0:
		f.assume("What the host adds to a batch on one lane with one buffer is taken to be half submission and half completion, " +
			"unless rows with more lanes tell otherwise.")
		return seconds(f.waits.single / 2)
	case f.waits.serial >= 0:
		f.assume("What the host adds to a serial batch is taken to be the same for its submission, its completion and each of " +
			"its three synchronizations, unless rows with more lanes tell otherwise.")
		return seconds(f.waits.serial / (synchronizations + 2))
	}
	f.assume("No row shows what the host adds to a batch: its latencies are taken to be 0.")
	return 0
}

// setHost sets the host's time on a submission, and divides what is left of the waits: one lane with one buffer
// shows the completion; without such a row each of a serial batch's waits is as long as the others.
func (f *Fitted) setHost(host time.Duration) {
	f.Host = host
	single, serial := f.waits.single-host.Seconds(), f.waits.serial-host.Seconds()
	if f.waits.single >= 0 {
		f.Completion = seconds(max(single, 0))
		f.Synchronize = seconds(max(serial-f.Completion.Seconds(), 0) / synchronizations)
		return
	}
	f.Completion = seconds(max(serial, 0) / (synchronizations + 1))
	f.Synchronize = f.Completion
}
