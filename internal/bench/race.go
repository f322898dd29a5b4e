package bench

import (
	"context"
	"errors"
	"fmt"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

// contender is one of the things that a race compares.
type contender struct {
	row report.Row // what is known of the row beforehand; its figures are filled in by finish

	// measure takes one round, over data made of seed, and puts what it saw into the contender.
	measure func(ctx context.Context, c *contender, seed uint64) error

	// base says that the contender is measured though nobody asked for its row, since others compare with it.
	base bool

	// close gives back what measure keeps between rounds; nil for nothing.
	close func() error

	// rival is the same work done by the yardstick; nil for none.
	rival *contender

	seconds []float64 // a batch, one for each round
	stages  [streams.NumEngines][]float64
	series  []series
}

// series is the samples of one figure, one a round unless said otherwise.
type series struct {
	name, unit string
	samples    []float64
}

// add adds samples to the figure of that name.
func (c *contender) add(name, unit string, samples ...float64) {
	if len(samples) == 0 {
		return
	}
	for i := range c.series {
		if c.series[i].name == name {
			c.series[i].samples = append(c.series[i].samples, samples...)
			return
		}
	}
	c.series = append(c.series, series{name, unit, samples})
}

// samples are those of a figure; none where it was not measured.
func (c *contender) samples(name string) []float64 {
	for _, s := range c.series {
		if s.name == name {
			return s.samples
		}
	}
	return nil
}

// compare adds, for each round in which both were measured, dividend over divisor.
func (c *contender) compare(name, unit string, dividend, divisor []float64) {
	for i := range min(len(dividend), len(divisor)) {
		if divisor[i] > 0 {
			c.add(name, unit, dividend[i]/divisor[i])
		}
	}
}

// measured says whether the contender has figures.
func (c *contender) measured() bool { return c != nil && c.row.Skipped == "" }

// race measures every contender once a round, in turns, and drops from it those that the device cannot do. nil
// contenders are passed over.
func (s *session) race(ctx context.Context, field ...*contender) (err error) {
	field = s.field(field)
	defer func() {
		for _, c := range field {
			if c.close != nil {
				err = errors.Join(err, c.close())
			}
		}
	}()
	for round := range s.Rounds {
		seed := s.seed() // one for all: they must not differ in their data
		for _, c := range field {
			if c.row.Skipped != "" {
				continue
			}
			s.Progress(fmt.Sprintf("%s %s%s, round %d of %d", c.row.Group, c.row.Name, onDevice(c.row.Device), round+1, s.Rounds))
			err := c.measure(ctx, c, seed)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			if reason, cannot := unable(err); cannot {
				c.row.Skipped = reason
			} else if err != nil {
				return fmt.Errorf("%s/%s%s: %w", c.row.Group, c.row.Name, onDevice(c.row.Device), err)
			}
		}
	}
	return nil
}

// onDevice names the device of a row, where one takes part in it.
func onDevice(id string) string {
	if id == "" {
		return ""
	}
	return " on " + id
}

// field is the contenders that are wanted, or that others are compared with, each followed by its rival.
func (s *session) field(all []*contender) (list []*contender) {
	for _, c := range all {
		if c == nil || !c.base && !s.wants(c.row.Group, c.row.Name) {
			continue
		}
		list = append(list, c)
		if c.rival != nil {
			list = append(list, c.rival)
		}
	}
	return list
}

// errUnable is what cannot be measured here, and why; it ends a row and not the run.
type errUnable struct{ error }

// unable says whether err means that the device cannot do this, and why. A wrong result or a lost device never does.
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

// finish enters the rows that were asked for into the report.
func (s *session) finish(field ...*contender) {
	for _, c := range field {
		if c == nil || !s.wants(c.row.Group, c.row.Name) {
			continue
		}
		c.compareRival(s)
		s.report.Rows = append(s.report.Rows, c.finished())
	}
}

// compareRival adds the ratio to the yardstick: above 1, this is faster.
func (c *contender) compareRival(s *session) {
	switch {
	case c.rival == nil:
	case c.rival.row.Skipped != "":
		s.note("%s: no comparison with the yardstick: %s", c.row.Name, c.rival.row.Skipped)
	case c.measured():
		c.compare(figureYardstick, "x", c.rival.seconds, c.seconds)
	}
}

// finished is the row with its figures.
func (c *contender) finished() report.Row {
	row := c.row
	if row.Skipped != "" {
		return row
	}
	if len(c.seconds) > 0 {
		batch := spread(c.seconds)
		row.Batch = &batch
	}
	for e, samples := range c.stages {
		if len(samples) == 0 {
			continue
		}
		if row.Stages == nil {
			row.Stages = map[string]report.Spread{}
		}
		row.Stages[streams.Engine(e).String()] = spread(samples)
	}
	for _, s := range c.series {
		row.Figures = append(row.Figures, report.Figure{Name: s.name, Unit: s.unit, Spread: spread(s.samples)})
	}
	return row
}
