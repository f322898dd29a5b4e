package plan

import (
	"context"
	"fmt"
	"math"
	"slices"

	"millrace/internal/streams"
)

// Lanes lists the lane counts of a forecast.
var Lanes = []int{1, 2, 3, 4, 6, 8, 16}

// MaxSizes bounds the number of batch sizes in a forecast, and MaxBatchBytes bounds each of them.
const (
	MaxSizes      = 32
	MaxBatchBytes = 1<<32 - 1
)

// nearBest is how close to the best pace the knee must come. The knee is the smallest lane count that does.
const nearBest = 1.02

// Forecast is a model's prediction for a workload.
type Forecast struct {
	Workload    Workload
	Fitted      Fitted
	Predictions []Prediction // by size; within a size, the serial schedule first and then by lanes
}

// Prediction is the predicted time of one schedule at one batch size.
type Prediction struct {
	Bytes          int     `json:"batch_bytes"`
	Schedule       string  `json:"schedule"` // "serial", or the worker's schedule on that device: "overlapped" or "triple"
	Lanes          int     `json:"lanes"`
	Buffers        int     `json:"buffers"` // host buffers per lane
	Seconds        float64 `json:"batch_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	Bottleneck     string  `json:"bottleneck"` // "copy_in", "compute", "copy_out" or "host": the one that is busy for the largest share of the time
	Busy           float64 `json:"busy"`       // share of the time that the bottleneck is busy, 0 to 1

	Knee     bool     `json:"knee,omitempty"`                   // the smallest lane count within 2 % of the best pace at this size
	Measured float64  `json:"measured_batch_seconds,omitempty"` // 0 if there is none
	Error    *float64 `json:"error,omitempty"`                  // relative, positive if the prediction is too long; nil if nothing was measured
	Fitted   bool     `json:"fitted,omitempty"`                 // Measured was used to fit the model
}

// Predict runs the model for the measured lane counts and those in Lanes, at the measured batch sizes and at the
// further sizes. There may be at most MaxSizes further sizes, each from 1 to MaxBatchBytes.
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

// fewSizes is the maximum number of measured sizes in a forecast. A bench run measures fewer; in a worker's trace each
// batch may have a different size.
const fewSizes = 8

// spreadOut selects fewSizes of the sizes, evenly by rank, including the smallest and the largest.
func spreadOut(sizes []int) (some []int) {
	for i := range fewSizes {
		some = append(some, sizes[i*(len(sizes)-1)/(fewSizes-1)])
	}
	return slices.Compact(some)
}

// predictSize predicts the serial schedule and every lane count for one size, and determines the knee.
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

// predict runs the model for a row's schedule and adds the measured value, if there is one.
func (o *Forecast) predict(ctx context.Context, r Row) (Prediction, error) {
	p := Prediction{Bytes: r.Bytes, Schedule: r.Schedule.Name, Lanes: r.Lanes, Buffers: r.Schedule.Buffers}
	pace, err := o.Fitted.pace(ctx, r.Bytes, r.Schedule, r.Lanes)
	if err != nil {
		return p, err
	}
	p.Seconds = pace.batch.Seconds()
	p.BytesPerSecond = float64(p.Bytes) / p.Seconds
	p.Bottleneck, p.Busy = pace.bottleneck()
	if i := slices.IndexFunc(o.Workload.Rows, r.alike); i >= 0 {
		p.Measured = o.Workload.Rows[i].Seconds
		p.Fitted = slices.ContainsFunc(o.Fitted.fitted, r.alike)
	}
	if p.Measured > 0 {
		off := p.Seconds/p.Measured - 1
		p.Error = &off
	}
	return p, nil
}

// markKnee sets Knee in one of the predictions, which must be for one size and ordered by lanes.
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

// Worst returns the prediction with the largest relative error, or false if nothing was measured.
func (o *Forecast) Worst() (worst Prediction, some bool) {
	for _, p := range o.Predictions {
		if p.Error != nil && (!some || math.Abs(*p.Error) > math.Abs(*worst.Error)) {
			worst, some = p, true
		}
	}
	return worst, some
}
