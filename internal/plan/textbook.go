package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"millrace/internal/device/sim"
	"millrace/internal/streams"
)

// These bounds keep the output of a textbook plan readable.
const (
	MaxBatches = 1000
	MaxLanes   = 1000
	MinStage   = 0.001  // units
	MaxStage   = 1000.0 // units
	maxSlots   = 20000  // maximum sum of all stages of all batches, in units
)

// Textbook is a plan for equal batches or for the equal chunks of one payload. Each stage takes a given number of time
// units. A payload with three stages of T each takes 3 T as a whole and T (1 + 2/N) in N chunks.
type Textbook struct {
	Batches int        // number of batches or chunks, from 1 to MaxBatches
	Chunked bool       // whether the batches are chunks that share the time of one payload
	Stages  [3]float64 // units of copy in, compute and copy out for a batch or the whole payload, each from MinStage to MaxStage
	Lanes   int        // lanes of the pipelined schedule, up to MaxLanes; 0 means one per batch
}

// Comparison holds the sequential and the pipelined run of a plan.
type Comparison struct {
	Stages     [3]float64 `json:"stages"`
	Sequential Timetable  `json:"sequential"`
	Pipelined  Timetable  `json:"pipelined"`
	Speedup    float64    `json:"speedup"`
}

// Check returns an error that joins the problems of the plan. It returns nil if Run accepts the plan.
func (t Textbook) Check() error {
	var errs []error
	things := "batches"
	if t.Chunked {
		things = "chunks"
	}
	if t.Batches < 1 || t.Batches > MaxBatches {
		errs = append(errs, fmt.Errorf("%d %s: take 1 to %d", t.Batches, things, MaxBatches))
	}
	if t.Lanes < 0 || t.Lanes > MaxLanes {
		errs = append(errs, fmt.Errorf("%d lanes: take 1 to %d, or 0 for as many as there are batches", t.Lanes, MaxLanes))
	}
	return errors.Join(append(errs, checkStages(t.Stages, t.Batches))...)
}

func checkStages(stages [3]float64, batches int) error {
	sum := 0.0
	for i, s := range stages {
		if !(s >= MinStage && s <= MaxStage) {
			return fmt.Errorf("%v takes %v units: take %v to %v", deviceStages[i], s, MinStage, MaxStage)
		}
		sum += s
	}
	if total := sum * float64(batches); total > maxSlots {
		return fmt.Errorf("all stages together take %v units, and a plan shows %d at most: lower the batches or the stages", number(total), maxSlots)
	}
	return nil
}

// Run runs the plan with streams.Serial and with streams.Overlapped. With streams.Serial, a chunked payload runs as a
// whole.
func (t Textbook) Run(ctx context.Context) (Comparison, error) {
	if err := t.Check(); err != nil {
		return Comparison{}, err
	}
	// unit is the time unit for a batch. The unit for a whole payload is a multiple of unit, so a chunk's share has no
	// fraction.
	const unit = time.Second
	c := Comparison{Stages: t.Stages}
	lanes, whole, batches := cmp.Or(t.Lanes, t.Batches), unit, t.Batches
	if t.Chunked {
		whole, batches = time.Duration(t.Batches)*unit, 1
	}
	serial, err := course{cost: units(t.Stages, whole), schedule: streams.Serial, lanes: 1, batches: batches}.run(ctx)
	if err != nil {
		return c, err
	}
	pipelined, err := course{cost: units(t.Stages, unit), schedule: streams.Overlapped, lanes: lanes, batches: t.Batches}.run(ctx)
	if err != nil {
		return c, err
	}
	if t.Chunked {
		c.Sequential = newTimetable(serial, whole, whole, "payload").called("Serial", 1, "T", "T")
		c.Pipelined = newTimetable(pipelined, unit, whole, "chunk").called("In chunks", lanes, fmt.Sprintf("T/%d", t.Batches), "T")
	} else {
		c.Sequential = newTimetable(serial, unit, unit, "batch").called("Sequential", 1, "1 time unit", "time units")
		c.Pipelined = newTimetable(pipelined, unit, unit, "batch").called("Pipelined", lanes, "1 time unit", "time units")
	}
	c.Speedup = c.Sequential.Total / c.Pipelined.Total
	return c, nil
}

// units returns the cost model of a device whose stages take the given numbers of units, regardless of the batch's
// size.
func units(stages [3]float64, unit time.Duration) sim.Model {
	cost := func(i int) sim.Cost {
		return sim.Cost{Latency: time.Duration(math.Round(stages[i] * float64(unit)))}
	}
	return sim.Model{CopyIn: cost(0), Kernel: cost(1), CopyOut: cost(2)}
}

func (t Timetable) called(name string, lanes int, slot, total string) Timetable {
	t.Name, t.Lanes, t.SlotUnit, t.TotalUnit = name, lanes, slot, total
	return t
}

// Write prints both schedules and the speedup.
func (c Comparison) Write(w io.Writer) error {
	if err := c.Sequential.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := c.Pipelined.Write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nSpeedup: %.2fx\n", c.Speedup)
	return err
}
