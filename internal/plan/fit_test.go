package plan

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// truth is a device and a host with known parameters. Its rows come from pipelines that run on it.
type truth struct {
	cost sim.Model // by bytes
	host time.Duration
}

// fullTruth has all parameters of the model, with the magnitudes of an H100 on PCIe gen 5.
func fullTruth() truth {
	const us = time.Microsecond
	bus := sim.Cost{Latency: 2400 * time.Nanosecond, BytesPerSecond: 55e9}
	return truth{host: 6 * us, cost: sim.Model{
		CopyIn: bus, CopyOut: bus, Kernel: sim.Cost{Latency: 3 * us, BytesPerSecond: 57e9},
		CopyShare: 0.9, ComputeShare: 0.97, Dispatch: us, Completion: 24 * us, Synchronize: 8 * us,
	}}
}

// at returns a course with batches of one size.
func (tr truth) at(size int, schedule streams.Schedule, lanes, batches int) course {
	m := tr.cost
	for _, c := range []*sim.Cost{&m.CopyIn, &m.Kernel, &m.CopyOut} {
		*c = sim.Cost{Latency: timeOf(*c, size)}
	}
	return course{cost: m, schedule: schedule, lanes: lanes, batches: batches, host: tr.host}
}

// measure runs a row like a bench run does, and takes its stages from the records of the batches.
func (tr truth) measure(t *testing.T, group, name string, size int, schedule streams.Schedule, lanes int) report.Row {
	t.Helper()
	records, p, err := tr.at(size, schedule, lanes, 0).steady(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	row := report.Row{
		Group: group, Name: name, Device: "GPU-1", Lanes: lanes, Buffers: schedule.Buffers, BatchBytes: size, Operator: "mix?rounds=7",
		Batches: len(records), Batch: spread(p.batch.Seconds()), Stages: map[string]report.Spread{},
	}
	for _, stage := range deviceStages {
		var times []float64
		for _, r := range records {
			times = append(times, r.Stages[stage].Duration().Seconds())
		}
		row.Stages[stage.String()] = *spread(median(times))
	}
	return row
}

func spread(v float64) *report.Spread { return &report.Spread{Median: v, Low: v, High: v, N: 1} }

// report measures the serial schedule and all lanes for the sizes.
func (tr truth) report(t *testing.T, lanes []int, sizes ...int) *report.Report {
	t.Helper()
	r := &report.Report{Version: report.Version, Devices: []report.Device{{Kind: "cuda", ID: "GPU-1", Name: "a GPU"}}}
	for _, size := range sizes {
		r.Rows = append(r.Rows, tr.measure(t, "schedules", "serial", size, streams.Serial, 1))
		for _, n := range lanes {
			r.Rows = append(r.Rows, tr.measure(t, "streams", "lanes", size, scheduleFor("cuda", size), n))
		}
	}
	return r
}

// load writes the report and reads it like a plan does.
func load(t *testing.T, r *report.Report) []Workload {
	t.Helper()
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	w, err := Load(&text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// forecast fits and predicts.
func forecast(t *testing.T, w Workload, further ...int) Forecast {
	t.Helper()
	f, err := Fit(context.Background(), w, 0)
	if err != nil {
		t.Fatal(err)
	}
	o, err := Predict(context.Background(), w, f, further)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// wantNear checks every prediction against the truth, whether or not it was measured.
func (tr truth) wantNear(t *testing.T, o Forecast, tolerance float64) {
	t.Helper()
	for _, p := range o.Predictions {
		schedule := scheduleFor(o.Workload.Kind, p.Bytes)
		if p.Schedule == streams.Serial.Name {
			schedule = streams.Serial
		}
		schedule.Buffers = p.Buffers
		want := tr.measure(t, "", "", p.Bytes, schedule, p.Lanes).Batch.Median
		if e := p.Seconds/want - 1; math.Abs(e) > tolerance {
			t.Errorf("%s, %d bytes, %d lanes: %.2f us a batch predicted, %.2f run: %.1f %%", p.Schedule, p.Bytes, p.Lanes,
				p.Seconds*1e6, want*1e6, 100*e)
		}
	}
}

const mib = 1 << 20

// only returns the single workload of a report.
func only(t *testing.T, w []Workload) Workload {
	t.Helper()
	if len(w) != 1 {
		t.Fatalf("%d workloads, want one: %+v", len(w), w)
	}
	return w[0]
}

// The serial schedule and two lane counts are measured at two batch sizes. The predictions for all other lane counts,
// and for sizes in between and beyond, must be within 2 % of the device's real times.
func TestForecastOfWhatWasNotMeasured(t *testing.T) {
	tr := fullTruth()
	w := only(t, load(t, tr.report(t, []int{1, 8}, mib, 16*mib)))
	if w.Operator != "mix" || w.Device != "GPU-1" || w.Name != "a GPU" {
		t.Errorf("workload of %q on %q (%q), want mix on GPU-1 (a GPU)", w.Operator, w.Device, w.Name)
	}
	tr.wantNear(t, forecast(t, w, 4*mib, 64*mib), 0.02)
}

// Tests the same with a kernel that takes longest and is slower while copies run.
func TestForecastOfAComputeBoundOperator(t *testing.T) {
	tr := fullTruth()
	tr.cost.Kernel.BytesPerSecond, tr.cost.ComputeShare = 20e9, 0.8
	o := forecast(t, only(t, load(t, tr.report(t, []int{1, 6}, mib, 16*mib))), 4*mib)
	tr.wantNear(t, o, 0.02)
	for _, p := range o.Predictions {
		if p.Schedule == "triple" && p.Bottleneck != "compute" {
			t.Errorf("%d bytes on %d lanes: the bottleneck is %s, want compute", p.Bytes, p.Lanes, p.Bottleneck)
		}
	}
}

// A host that is slower than the engines determines the pace of small batches, and the fit finds its time in them. On
// one lane its waits look like gaps between the stages, which makes the predictions for other sizes less certain: 7 %.
func TestForecastOfABusyHost(t *testing.T) {
	tr := fullTruth()
	tr.host = 15 * time.Microsecond
	o := forecast(t, only(t, load(t, tr.report(t, []int{1, 8}, 64<<10, 16*mib))), 128<<10)
	if got := o.Fitted.Host; got < 14500*time.Nanosecond || got > 15500*time.Nanosecond {
		t.Errorf("the host takes %v for a batch, want 15us", got)
	}
	tr.wantNear(t, o, 0.07)
	for _, p := range o.Predictions {
		if p.Bytes <= 128<<10 && p.Lanes >= 4 && p.Bottleneck != "host" {
			t.Errorf("%d bytes on %d lanes: the bottleneck is %s, want the host", p.Bytes, p.Lanes, p.Bottleneck)
		}
	}
}

// With one buffer per lane, the completion and the host are part of every round. A row with one such lane separates
// them from the synchronizations.
func TestForecastOfOneBuffer(t *testing.T) {
	tr := fullTruth()
	single := scheduleFor("cuda", mib)
	single.Buffers = 1
	r := tr.report(t, []int{1, 6, 8}, mib, 16*mib)
	for _, lanes := range []int{1, 2, 3} {
		r.Rows = append(r.Rows, tr.measure(t, "streams", "one buffer", mib, single, lanes))
	}
	o := forecast(t, only(t, load(t, r)))
	tr.wantNear(t, o, 0.03)
	found := 0
	for _, p := range o.Predictions {
		if p.Buffers == 1 && p.Schedule == "triple" {
			found++
			if p.Measured == 0 || p.Fitted {
				t.Errorf("prediction %+v, want one with what was measured, which was not fitted", p)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d predictions with one buffer, want the 3 that were measured", found)
	}
	if want := 30 * time.Microsecond; (o.Fitted.Host + o.Fitted.Completion - want).Abs() > time.Microsecond {
		t.Errorf("host %v and completion %v, want %v together", o.Fitted.Host, o.Fitted.Completion, want)
	}
}

// A value in the report, or a given value, is not fitted.
func TestHostTimeThatIsKnown(t *testing.T) {
	tr := fullTruth()
	r := tr.report(t, []int{1, 4}, mib)
	r.Rows[2].Figures = []report.Figure{{Name: "host seconds a batch", Unit: "s", Spread: *spread(6e-6)}}
	w := only(t, load(t, r))
	for given, want := range map[time.Duration]time.Duration{0: 6 * time.Microsecond, 9 * time.Microsecond: 9 * time.Microsecond} {
		f, err := Fit(context.Background(), w, given)
		if err != nil {
			t.Fatal(err)
		}
		if f.Host != want {
			t.Errorf("with %v given the host takes %v, want %v", given, f.Host, want)
		}
	}
}

// The processor time of a row is an upper bound for the host's time in it.
func TestProcessorTimeBoundsTheHost(t *testing.T) {
	tr := fullTruth()
	r := tr.report(t, []int{1, 4}, mib)
	last := &r.Rows[2]
	last.Figures = []report.Figure{{Name: "host cores", Spread: *spread(4e-6 / last.Batch.Median)}}
	if f := forecast(t, only(t, load(t, r))).Fitted; f.Host > 4*time.Microsecond+1 {
		t.Errorf("the host takes %v for a batch, and its processors took 4us", f.Host)
	}
}

// Missing data leads to assumptions, which are reported.
func TestAssumptions(t *testing.T) {
	tr := fullTruth()
	whole := tr.report(t, []int{1, 4}, mib)
	for want, rows := range map[string][]report.Row{
		"batches of 1048576 bytes":     whole.Rows,
		"one lane with two buffers":    whole.Rows[:1],
		"No row has several lanes":     whole.Rows[:2],
		"No row shows the host's time": whole.Rows[1:],
		"No stage times are of one":    whole.Rows[2:],
	} {
		o := forecast(t, only(t, load(t, &report.Report{Version: report.Version, Rows: rows})))
		if !slices.ContainsFunc(o.Fitted.Assumptions, func(a string) bool { return strings.Contains(a, want) }) {
			t.Errorf("assumptions %q, want one that says %q", o.Fitted.Assumptions, want)
		}
		if len(o.Predictions) != 1+len(Lanes) {
			t.Errorf("%d predictions, want the serial schedule and %d lane counts", len(o.Predictions), len(Lanes))
		}
	}
}

func knees(o Forecast) []Prediction {
	return slices.DeleteFunc(slices.Clone(o.Predictions), func(p Prediction) bool { return !p.Knee })
}

// Three stages of equal length need three lanes if nothing else takes time.
func TestKnee(t *testing.T) {
	stage := sim.Cost{Latency: 100 * time.Microsecond}
	tr := truth{cost: sim.Model{CopyIn: stage, Kernel: stage, CopyOut: stage}}
	o := forecast(t, only(t, load(t, tr.report(t, []int{1, 8}, mib))))
	if knees := knees(o); len(knees) != 1 || knees[0].Lanes != 3 || knees[0].Bytes != mib {
		t.Errorf("knees %+v, want one at 3 lanes", knees)
	}
	worst, some := o.Worst()
	if !some || math.Abs(*worst.Error) > 0.001 {
		t.Errorf("the largest error is %.2f %% of %+v, want none to speak of", 100**worst.Error, worst)
	}
}

// More lanes are worthwhile only if they improve the pace by more than two percent.
func TestKneeIsNearTheBest(t *testing.T) {
	predictions := func(seconds ...float64) (of []Prediction) {
		of = append(of, Prediction{Schedule: streams.Serial.Name, Lanes: 1, Buffers: 1, Seconds: 1}) // doesn't count
		for i, s := range seconds {
			of = append(of, Prediction{Schedule: streams.Overlapped.Name, Lanes: i + 1, Buffers: streams.Overlapped.Buffers, Seconds: s})
		}
		return of
	}
	for want, of := range map[int][]Prediction{
		1: predictions(101, 100, 100),
		2: predictions(103, 102, 100),
		3: predictions(150, 103, 100),
	} {
		markKnee(of)
		if knees := knees(Forecast{Predictions: of}); len(knees) != 1 || knees[0].Lanes != want {
			t.Errorf("knees %+v, want one at %d lanes", knees, want)
		}
	}
}

// The error of a prediction is relative to the value in the file, even if that is wrong.
func TestErrorAgainstTheMeasured(t *testing.T) {
	tr := fullTruth()
	r := tr.report(t, []int{1, 3, 6, 8}, mib)
	r.Rows[2].Batch = spread(1.25 * r.Rows[2].Batch.Median) // three lanes, which are not used for the fit
	o := forecast(t, only(t, load(t, r)))
	worst, some := o.Worst()
	if !some || worst.Lanes != 3 || worst.Fitted || math.Abs(*worst.Error+0.2) > 0.02 {
		t.Errorf("the largest error is %.1f %% of %+v, want -20 %% on 3 lanes", 100**worst.Error, worst)
	}
}

func TestBadSizes(t *testing.T) {
	w := only(t, load(t, fullTruth().report(t, []int{1}, mib)))
	f, err := Fit(context.Background(), w, 0)
	if err != nil {
		t.Fatal(err)
	}
	for want, sizes := range map[string][]int{
		"0 bytes: take 1 to":          {0},
		"4294967296 bytes: take 1 to": {1 << 32},
		"33 further batch sizes":      make([]int, 33),
	} {
		if _, err := Predict(context.Background(), w, f, sizes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Predict = %v, want an error that says %q", err, want)
		}
	}
}
