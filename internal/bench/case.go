package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

// Case is one row while it is measured.
type Case struct {
	// Row holds the fields that are known before the first round, except Group. Session.Report adds the figures.
	Row report.Row

	// Measure runs one round over data derived from seed and adds its measurements to the case.
	Measure func(ctx context.Context, c *Case, seed uint64) error

	// Reference marks a case that others are compared with. It is measured even if its row was not requested.
	Reference bool

	// Close frees the objects that Measure keeps between rounds; nil if there are none.
	Close func() error

	baseline *Case // the same work in the baseline program; nil if there is none

	times   int       // how often Measure repeats its work in a round; 0 until the first round has determined it
	seconds []float64 // per batch, one value per round
	stages  [streams.NumEngines][]float64
	samples []samples
	ratios  []report.Figure
}

// samples are the values of one figure, usually one per round.
type samples struct {
	name, unit string
	values     []float64
}

// Add adds samples to the figure with that name. Only figures with one sample per round can be compared.
func (c *Case) Add(name, unit string, values ...float64) {
	if len(values) == 0 {
		return
	}
	for i := range c.samples {
		if c.samples[i].name == name {
			c.samples[i].values = append(c.samples[i].values, values...)
			return
		}
	}
	c.samples = append(c.samples, samples{name, unit, values})
}

// figure returns the samples of a figure, or nil if it was not measured.
func (c *Case) figure(name string) []float64 {
	for _, s := range c.samples {
		if s.name == name {
			return s.values
		}
	}
	return nil
}

// Compare adds a ratio with that name: a figure of this case divided by the same figure of another case.
func (c *Case) Compare(ratio, figure string, other *Case) {
	c.ratio(ratio, "x", c.figure(figure), other.figure(figure))
}

// ratio adds a figure that compares two others. See ratioOf. It adds nothing if they can't be compared.
func (c *Case) ratio(name, unit string, dividend, divisor []float64) {
	if of, ok := ratioOf(dividend, divisor); ok {
		c.ratios = append(c.ratios, report.Figure{Name: name, Unit: unit, Spread: of})
	}
}

// derive adds a figure that f computes from a spread. The function f must be decreasing.
func (c *Case) derive(name, unit string, from report.Spread, f func(float64) float64) {
	c.ratios = append(c.ratios, report.Figure{Name: name, Unit: unit, Spread: report.Spread{
		Median: f(from.Median), Low: f(from.High), High: f(from.Low), N: from.N,
	}})
}

// measured reports whether the case has figures.
func (c *Case) measured() bool { return c.Row.Skipped == "" }

// Pace returns how often the case repeats its work in a round: from least to most times, so that it takes about turn.
// The first round determines the number with run, which does the work n times and returns how long that took.
func (c *Case) Pace(turn time.Duration, least, most int, run func(n int) (time.Duration, error)) (n int, err error) {
	if c.times == 0 {
		c.times, err = pace(turn, least, most, run)
	}
	return c.times, err
}

// timed runs one round with run, which does the work n times and returns how long that took. The first call is a
// warm-up that determines how often the work fits into turn. The second call is the measurement.
func (c *Case) timed(turn time.Duration, least int, run func(n int) (time.Duration, error)) error {
	if _, err := run(least); err != nil {
		return err
	}
	n, err := c.Pace(turn, least, maxTimes, run)
	if err != nil {
		return err
	}
	took, err := run(n)
	if err != nil {
		return err
	}
	c.Row.Batches += n
	c.seconds = append(c.seconds, took.Seconds()/float64(n))
	return nil
}

// Measure interleaves the rounds of the cases: every case once, then every case again. All cases of a round use the
// same seed, so they have the same data. If a case can't be measured, the reason is in Row.Skipped; every other error
// ends the run. Measure ignores nil cases.
func (s *Session) Measure(ctx context.Context, cases ...*Case) (err error) {
	cases = s.selected(cases)
	defer func() {
		for _, c := range cases {
			if c.Close != nil {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	for round := range s.Rounds {
		seed := s.seed()
		for _, c := range cases {
			if !c.measured() {
				continue
			}
			name := c.Row.Group + "/" + c.Row.Name + onDevice(c.Row.Device)
			s.Progress(fmt.Sprintf("%s, round %d of %d", name, round+1, s.Rounds))
			err := c.Measure(ctx, c, seed)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			if reason, cannot := unable(err); cannot {
				c.Row.Skipped = reason
			} else if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// onDevice names a row's device. It returns an empty string for a row without one.
func onDevice(id string) string {
	if id == "" {
		return ""
	}
	return " on " + id
}

// selected returns the requested cases and the cases that they are compared with, each followed by its baseline.
func (s *Session) selected(all []*Case) (list []*Case) {
	for _, c := range all {
		if c == nil {
			continue
		}
		c.Row.Group = s.suite.Name
		if !c.Reference && !s.wants(c.Row.Group, c.Row.Name) {
			continue
		}
		list = append(list, c)
		if c.baseline != nil {
			c.baseline.Row = report.Row{Group: c.Row.Group, Name: c.Row.Name + " by the baseline program", Device: c.Row.Device}
			list = append(list, c.baseline)
		}
	}
	return list
}

// errUnable is the reason why something can't be measured here. It ends a row, not the run.
type errUnable struct{ error }

// Unable returns an error that ends a row but not the run. The text must say what can't be measured here, and why.
func Unable(format string, args ...any) error { return errUnable{fmt.Errorf(format, args...)} }

// unable reports whether err means that the device can't do this, and returns the reason. A wrong result or a lost
// device never counts as such.
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

// Report adds the requested rows to the report, in this order.
func (s *Session) Report(cases ...*Case) {
	for _, c := range cases {
		if s.wants(c.Row.Group, c.Row.Name) {
			c.compareBaseline(s)
			s.report.Rows = append(s.report.Rows, c.finished())
		}
	}
}

// finished returns the row with its figures.
func (c *Case) finished() report.Row {
	row := c.Row
	if row.Skipped != "" {
		return row
	}
	if len(c.seconds) > 0 {
		batch := spread(c.seconds)
		row.Batch = &batch
	}
	for e, values := range c.stages {
		if len(values) == 0 {
			continue
		}
		if row.Stages == nil {
			row.Stages = map[string]report.Spread{}
		}
		row.Stages[streams.Engine(e).String()] = spread(values)
	}
	for _, s := range c.samples {
		row.Figures = append(row.Figures, report.Figure{Name: s.name, Unit: s.unit, Spread: spread(s.values)})
	}
	row.Figures = append(row.Figures, c.ratios...)
	return row
}
