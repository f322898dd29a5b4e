package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

// Case is the measurement of one row.
type Case struct {
	// Row holds the fields that are known before the first round, except Group. The session computes the figures.
	Row report.Row

	// Measure runs one round with data derived from seed and adds the measurements to c. See repeat.
	Measure func(ctx context.Context, c *Case, seed uint64) error

	// Reference marks a case that other cases are compared with. It is measured even if its row was not requested.
	Reference bool

	hidden   bool      // whether the case has no row and is used only in comparisons
	baseline *baseline // the same work in the baseline program; may be nil
	ordinal  int       // ordinal of the device, for the baseline program

	times   int                           // number of repetitions in a round; 0 until the first round has determined it
	seconds []float64                     // seconds per batch, one value per round
	stages  [streams.NumEngines][]float64 // seconds on each engine, one median per round
	samples []samples
	ratios  []report.Figure
	compare []func() // comparisons with other cases, called after the last round
}

// samples holds the values of one figure, usually one per round.
type samples struct {
	name, unit string
	values     []float64
}

// Add adds samples to the figure with the given name. Only figures with one sample per round can be compared.
func (c *Case) Add(name, unit string, values ...float64) {
	if len(values) == 0 {
		return
	}
	i := slices.IndexFunc(c.samples, func(s samples) bool { return s.name == name })
	if i < 0 {
		c.samples = append(c.samples, samples{name, unit, values})
		return
	}
	c.samples[i].values = append(c.samples[i].values, values...)
}

func (c *Case) add(f figure, value float64) { c.Add(f.name, f.unit, value) }

// perRound is a function that returns one value for each round. Comparisons call it after the last round.
type perRound func() []float64

func (c *Case) batch() []float64 { return c.seconds }

// stage returns a function that returns the seconds per batch on an engine.
func (c *Case) stage(e streams.Engine) perRound { return func() []float64 { return c.stages[e] } }

// figure returns a function that returns the samples of a figure, or nil if the figure was not measured.
func (c *Case) figure(name string) perRound {
	return func() []float64 {
		for _, s := range c.samples {
			if s.name == name {
				return s.values
			}
		}
		return nil
	}
}

// longerStage returns a function that returns the larger of the values of a and b in each round.
func longerStage(a, b perRound) perRound {
	return func() []float64 {
		all := make([]float64, min(len(a()), len(b())))
		for i := range all {
			all[i] = max(a()[i], b()[i])
		}
		return all
	}
}

// Compare adds a figure with the name ratio. Its value is the figure of this case with the name of, divided by the same
// figure of the case other.
func (c *Case) Compare(ratio, of string, other *Case) {
	c.ratio(figure{name: ratio, unit: "x"}, c.figure(of), other.figure(of))
}

// ratio adds the figure f, dividend divided by divisor, after the last round. It adds nothing if ratioOf can't compare
// them.
func (c *Case) ratio(f figure, dividend, divisor perRound) {
	c.later(f, func() (report.Spread, bool) { return ratioOf(dividend(), divisor()) })
}

// later adds the figure f after the last round, with the value that compute returns. If ok is false, the figure is omitted.
func (c *Case) later(f figure, compute func() (of report.Spread, ok bool)) {
	c.compare = append(c.compare, func() {
		if of, ok := compute(); ok {
			c.ratios = append(c.ratios, report.Figure{Name: f.name, Unit: f.unit, Spread: of})
		}
	})
}

func (c *Case) measured() bool { return c.Row.Skipped == "" && len(c.seconds) > 0 }

// row returns the row with its figures. If the row was skipped, row returns it without figures.
func (c *Case) row() report.Row {
	row := c.Row
	if row.Skipped != "" {
		return row
	}
	if len(c.seconds) > 0 {
		batch := spread(c.seconds)
		row.Batch = &batch
	}
	for e, seconds := range c.stages {
		if len(seconds) == 0 {
			continue
		}
		if row.Stages == nil {
			row.Stages = map[string]report.Spread{}
		}
		row.Stages[streams.Engine(e).String()] = spread(seconds)
	}
	for _, s := range c.samples {
		row.Figures = append(row.Figures, report.Figure{Name: s.name, Unit: s.unit, Spread: spread(s.values)})
	}
	row.Figures = append(row.Figures, c.ratios...)
	return row
}

// work is the repeated work of a case.
type work interface {
	// open sets up a round with data derived from seed.
	open(ctx context.Context, seed uint64) error
	// minTimes returns the smallest number of repetitions.
	minTimes() int
	// run repeats the work n times and returns the time taken.
	run(ctx context.Context, n int) (time.Duration, error)
	// finish checks the results of the last run and adds its figures to c.
	finish(c *Case) error
	// close frees the resources of open, even if open has failed.
	close() error
}

// repeat returns a function for Case.Measure that runs one round of w: set-up, warm-up, measurement, check. The
// measurement takes about as long as turn.
func repeat(w work, turn time.Duration) func(context.Context, *Case, uint64) error {
	return func(ctx context.Context, c *Case, seed uint64) (err error) {
		defer func() { err = errors.Join(err, w.close()) }()
		if err := w.open(ctx, seed); err != nil {
			return err
		}
		run := func(n int) (time.Duration, error) { return w.run(ctx, n) }
		if _, err := run(w.minTimes()); err != nil {
			return err
		}
		n, err := c.Pace(turn, w.minTimes(), maxTimes, run)
		if err != nil {
			return err
		}
		took, err := run(n)
		if err != nil {
			return err
		}
		c.Row.Batches += n
		c.seconds = append(c.seconds, took.Seconds()/float64(n))
		return w.finish(c)
	}
}

// maxTimes is the maximum number of repetitions in one round.
const maxTimes = 1000000

// Pace returns the number of repetitions, from minimum to maximum, that take about as long as turn. In the first round, Pace
// determines the number with run, which repeats the work n times and returns the time taken. These calls also warm up.
func (c *Case) Pace(turn time.Duration, minimum, maximum int, run func(n int) (time.Duration, error)) (int, error) {
	for n := minimum; c.times == 0; {
		took, err := run(n)
		if err != nil {
			return 0, err
		}
		fits := float64(turn) / float64(max(took, 1)) // number of such runs that fit into the duration turn
		// Half of turn is long enough to extrapolate from. In shorter runs, one-time costs weigh too much.
		if fits <= 2 || n == maximum {
			c.times = min(max(int(float64(n)*fits), minimum), maximum)
		}
		n = min(int(float64(n)*min(fits, 16)), maximum)
	}
	return c.times, nil
}

// CPUTime returns the processor time that this process has used so far, on all cores, from getrusage(2).
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("bench: getrusage of this process: " + err.Error()) // getrusage can't fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spread returns the median of values with the 10th and the 90th percentile. It panics if there are no values.
func spread(values []float64) report.Spread {
	sorted := slices.Sorted(slices.Values(values))
	return report.Spread{
		Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1), High: quantile(sorted, 0.9), N: len(sorted),
	}
}

// ratioOf divides the figure dividend by the figure divisor. Each has one value per round. Median is the quotient of their
// medians, so a ratio agrees with the other columns of its table. Low and High are percentiles of the ratios of single
// rounds. ok is false if the figures have different numbers of values or none, or if a divisor isn't positive.
func ratioOf(dividend, divisor []float64) (of report.Spread, ok bool) {
	if len(divisor) == 0 || len(dividend) != len(divisor) || slices.Min(divisor) <= 0 {
		return report.Spread{}, false
	}
	rounds := make([]float64, len(divisor))
	for i := range rounds {
		rounds[i] = dividend[i] / divisor[i]
	}
	of = spread(rounds)
	of.Median = median(dividend) / median(divisor)
	of.Low, of.High = min(of.Low, of.Median), max(of.High, of.Median)
	return of, true
}

// inverse applies the decreasing function f to a spread, so Low and High change places.
func inverse(of report.Spread, f func(float64) float64) report.Spread {
	return report.Spread{Median: f(of.Median), Low: f(of.High), High: f(of.Low), N: of.N}
}

// quantile returns the q-th quantile (0 to 1) of sorted values, interpolated between the two nearest values.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	share := at - float64(below)
	return sorted[below] + share*(sorted[below+1]-sorted[below]) // exact if both are equal
}

// median returns the median of values, which must not be empty.
func median(values []float64) float64 { return Percentile(values, 0.5) }

// Percentile returns the quantile q (0 to 1) of values. It panics for an empty slice.
func Percentile(values []float64, q float64) float64 {
	return quantile(slices.Sorted(slices.Values(values)), q)
}

// errUnable is the error for a row that can't be measured. The session skips the row and continues the run.
type errUnable struct{ error }

// Unable returns an error for a row that can't be measured. The session skips the row and continues the run. The text must
// name the impossible measurement and the reason.
func Unable(format string, args ...any) error { return errUnable{fmt.Errorf(format, args...)} }

// unable reports whether err means that a row can't be measured on this device, and returns the reason.
func unable(err error) (reason string, cannot bool) {
	var asked errUnable
	var wrong errWrong
	switch {
	case err == nil, errors.Is(err, device.ErrLost), errors.As(err, &wrong):
		return "", false
	case errors.As(err, &asked), errors.Is(err, device.ErrUnavailable), errors.Is(err, device.ErrNotFound),
		errors.Is(err, device.ErrOutOfMemory):
		return err.Error(), true
	}
	return "", false
}
