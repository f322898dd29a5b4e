package plan

import (
	"context"
	"fmt"
	"math"
	"slices"

	"millrace/internal/streams"
)

// Lanes are the lane counts that a forecast has.
var Lanes = []int{1, 2, 3, 4, 6, 8, 16}

// MaxSizes bounds the batch sizes of a forecast, MaxBatchBytes each of them.
const (
	MaxSizes      = 32
	MaxBatchBytes = 1<<32 - 1
)

// nearBest is how near to the best a pace must come to be as good: the knee has the least lanes that do.
const nearBest = 1.02

// Forecast is what a model says of a workload.
type Forecast struct {
	Workload    Workload
	Fitted      Fitted
	Predictions []Prediction // by size, the serial schedule first and then by lanes
}

// Prediction is one schedule at one batch size.
type Prediction struct {
	Bytes      int
	Schedule   string // "serial", or the worker's on that device: "overlapped", "triple"
	Lanes      int
	Buffers    int // host buffers a lane
	Seconds    float64
	Bottleneck string  // "copy_in", "compute", "copy_out" or "host": what is busy for most of the time
	Busy       float64 // the share of the time that it is busy, 0 to 1

	Knee     bool    // the least lanes that come within 2 % of the best pace of any, at that size
	Measured float64 // seconds a batch in the file; 0 where there are none
	Fitted   bool    // the model was made with Measured
}

// BytesPerSecond is the throughput.
func (p Prediction) BytesPerSecond() float64 { return float64(p.Bytes) / p.Seconds }

// Error is how much more time is predicted than was measured, as a share of the latter; 0 where nothing was measured.
func (p Prediction) Error() float64 {
	if p.Measured == 0 {
		return 0
	}
	return p.Seconds/p.Measured - 1
}

// Predict runs the model for the lane counts in Lanes and those that were measured, at the batch sizes that were
// measured and at the further ones given, each 1 to MaxBatchBytes and MaxSizes at most.
func Predict(ctx context.Context, w Workload, f Fitted, further []int) (Forecast, error) {
	forecast := Forecast{Workload: w, Fitted: f}
	if len(further) > MaxSizes {
		return forecast, fmt.Errorf("%d further batch sizes: take %d at most", len(further), MaxSizes)
	}
	sizes := w.sizes()
	if len(sizes) > fewSizes {
		sizes = spreadOut(sizes)
	}
	for _, size := range further {
		if size < 1 || size > MaxBatchBytes {
			return forecast, fmt.Errorf("a batch size of %d bytes: take 1 to %d", size, MaxBatchBytes)
		}
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		if err := forecast.predictSize(ctx, size); err != nil {
			return forecast, err
		}
	}
	return forecast, nil
}

// fewSizes is how many of the measured sizes a forecast has. A bench run measures fewer; a trace of a worker may have
// a size of its own for each batch.
const fewSizes = 8

// spreadOut picks fewSizes of more sizes, evenly by rank, the smallest and the largest among them.
func spreadOut(sizes []int) (some []int) {
	for i := range fewSizes {
		some = append(some, sizes[i*(len(sizes)-1)/(fewSizes-1)])
	}
	return slices.Compact(some)
}

// predictSize predicts the serial schedule and every lane count for one size, and finds the knee.
func (o *Forecast) predictSize(ctx context.Context, size int) error {
	rows := []Row{{Bytes: size, Schedule: streams.Serial, Lanes: 1}}
	for _, lanes := range Lanes {
		rows = append(rows, Row{Bytes: size, Schedule: scheduleFor(o.Workload.Kind, size), Lanes: lanes})
	}
	for _, r := range o.Workload.Rows {
		if r.Bytes == size && !slices.ContainsFunc(rows, r.alike) && r.Seconds > 0 {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, Row.compare)
	first := len(o.Predictions)
	for _, r := range rows {
		p, err := o.predict(ctx, r)
		if err != nil {
			return err
		}
		o.Predictions = append(o.Predictions, p)
	}
	markKnee(o.Predictions[first:])
	return nil
}

// predict runs the model for a row's schedule and compares with what was measured.
func (o *Forecast) predict(ctx context.Context, r Row) (Prediction, error) {
	p := Prediction{Bytes: r.Bytes, Schedule: r.Schedule.Name, Lanes: r.Lanes, Buffers: r.Schedule.Buffers}
	pace, err := o.Fitted.pace(ctx, r.Bytes, r.Schedule, r.Lanes)
	if err != nil {
		return p, err
	}
	p.Seconds = pace.batch.Seconds()
	p.Bottleneck, p.Busy = pace.bottleneck()
	if i := slices.IndexFunc(o.Workload.Rows, r.alike); i >= 0 {
		p.Measured = o.Workload.Rows[i].Seconds
		p.Fitted = slices.ContainsFunc(o.Fitted.fitted, r.alike)
	}
	return p, nil
}

// markKnee marks the knee among predictions of one size, ordered by lanes.
func markKnee(of []Prediction) {
	schedule := func(p Prediction) bool {
		return p.Schedule != streams.Serial.Name && p.Buffers == streams.Overlapped.Buffers
	}
	best := math.Inf(1)
	for _, p := range of {
		if schedule(p) {
			best = min(best, p.Seconds)
		}
	}
	i := slices.IndexFunc(of, func(p Prediction) bool { return schedule(p) && p.Seconds <= nearBest*best })
	of[i].Knee = true
}

// Worst is the prediction that is farthest from what was measured; false where nothing was.
func (o *Forecast) Worst() (worst Prediction, some bool) {
	for _, p := range o.Predictions {
		if p.Measured > 0 && (!some || math.Abs(p.Error()) > math.Abs(worst.Error())) {
			worst, some = p, true
		}
	}
	return worst, some
}
