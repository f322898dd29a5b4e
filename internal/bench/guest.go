package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Guest is a group of rows that another room measures, because it knows things that this one does not. It gets its
// rounds, its seeds, its tables and its place in the report here, so that there is one bench.
type Guest struct {
	Group       string
	Experiments []GuestExperiment
	Columns     []Column // behind those that every table may have

	MinBytes, MaxBytes int // of a payload, for Options.Bytes
}

// GuestExperiment is rows of a guest that are measured together and make one table.
type GuestExperiment struct {
	Rows []Entry // Group is left out
	Run  func(context.Context, *Track) error
}

// Column shows one figure in the guest's tables.
type Column struct {
	Title, Legend string // the legend is empty where the title says enough
	Figure        string // its name in the report
	Write         func(report.Spread) string
}

// experiments are the guest's as this package keeps its own.
func (g Guest) experiments() []experiment {
	var all []experiment
	for _, e := range g.Experiments {
		all = append(all, experiment{group: g.Group, rows: e.Rows, together: func(ctx context.Context, targets []*target) error {
			return e.Run(ctx, &Track{s: targets[0].session, g: g})
		}})
	}
	return all
}

// columns are those of this package and the guests'.
func (s *session) columns() []column {
	all := slices.Clone(columns)
	for _, g := range s.Guests {
		for _, c := range g.Columns {
			all = append(all, column{title: c.Title, legend: c.Legend, cell: c.cell, group: g.Group})
		}
	}
	return all
}

func (c Column) cell(r report.Row) string {
	f, ok := r.Figure(c.Figure)
	if !ok {
		return ""
	}
	return c.Write(f.Spread)
}

// Track is where a guest's rows are measured in turns.
type Track struct {
	s *session
	g Guest
}

// Devices are those that are measured. They stay whose they are, and have no pipeline while the guest is at it.
func (t *Track) Devices() []device.Device { return t.s.Devices }

// Pipeline is the configuration that the worker gives a device's pipeline, with the lanes that were asked for.
func (t *Track) Pipeline(d device.Info, ops []operator.Operator) streams.Config {
	c := t.s.Pipeline(d, ops)
	c.Lanes = t.s.Lanes
	return c
}

// Sizes are the payload sizes to measure, in bytes: those of Options.Bytes that a payload can have, or otherwise.
func (t *Track) Sizes(otherwise ...int) []int {
	if len(t.s.Bytes) == 0 {
		return otherwise
	}
	var sizes []int
	for _, n := range t.s.Bytes {
		if n < t.g.MinBytes || n > t.g.MaxBytes {
			t.Note("payloads of %s were left out: give %d to %d bytes", bytesText(n), t.g.MinBytes, t.g.MaxBytes)
			continue
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// Turn is how long one round of a row is measured for.
func (t *Track) Turn() time.Duration { return t.s.turn() }

// Pace finds how often to do something, least to most times, so that it takes about Turn, by doing it.
func (t *Track) Pace(least, most int, run func(n int) (time.Duration, error)) (int, error) {
	return paceWithin(t.s.turn(), least, most, run)
}

// Note has a line said below the table.
func (t *Track) Note(format string, args ...any) { t.s.note(format, args...) }

// CPUTime is the processor time that this process has taken so far, on all cores.
func CPUTime() time.Duration { return cpuTime() }

// Unable makes an error that ends a row and not the run: what cannot be measured here, and why.
func Unable(format string, args ...any) error { return errUnable{fmt.Errorf(format, args...)} }

// Contender is a row of a guest that runs in a race.
type Contender struct{ inner *contender }

// Measure takes one round over data made of seed, and adds what it saw to the contender.
type Measure func(ctx context.Context, c *Contender, seed uint64) error

// Contender makes one of a row; what it says beside its figures is known beforehand, the group is the guest's. base
// has it measured though nobody asks for it, since others compare with it.
func (t *Track) Contender(row report.Row, base bool, measure Measure) *Contender {
	row.Group = t.g.Group
	c := &Contender{inner: &contender{row: row, base: base}}
	c.inner.measure = func(ctx context.Context, _ *contender, seed uint64) error { return measure(ctx, c, seed) }
	return c
}

// Add adds samples to the figure of that name: one a round, so that rounds can be compared.
func (c *Contender) Add(name, unit string, samples ...float64) { c.inner.add(name, unit, samples...) }

// Compare adds the figure ratio: for each round, a figure of this contender over the same one of another.
func (c *Contender) Compare(ratio, of string, other *Contender) {
	c.inner.compare(ratio, "x", c.inner.samples(of), other.inner.samples(of))
}

// Race measures every contender once a round, in turns: all in a round get one seed. It fails where one of them fails
// with anything but Unable.
func (t *Track) Race(ctx context.Context, all ...*Contender) error {
	field := make([]*contender, len(all))
	for i, c := range all {
		field[i] = c.inner
	}
	return t.s.race(ctx, field...)
}

// Finish enters the rows that were asked for into the report, in this order.
func (t *Track) Finish(all ...*Contender) {
	for _, c := range all {
		t.s.finish(c.inner)
	}
}
