package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/internal/streams"
)

// Chunks plans one payload whose copies and kernel are cut into equal chunks, each of which takes its share of the
// payload's time. If all three stages take T, the payload takes 3 T as a whole and T (1 + 2/N) in N chunks.
type Chunks struct {
	Chunks int        // 1 to MaxBatches
	Stages [3]float64 // duration of copy in, compute and copy out for the whole payload, in T; bounds as in Textbook
	Lanes  int        // lanes of the chunked schedule; 0 means one per chunk
}

// Check returns all problems of the plan.
func (c Chunks) Check() error {
	return errors.Join(checkCount("chunks", c.Chunks, MaxBatches), checkLanes(c.Lanes), checkStages(c.Stages, c.Chunks))
}

// Run runs the payload as a whole on streams.Serial, and its chunks as batches on streams.Overlapped.
func (c Chunks) Run(ctx context.Context) (Comparison, error) {
	if err := c.Check(); err != nil {
		return Comparison{}, err
	}
	lanes := c.Lanes
	if lanes == 0 {
		lanes = c.Chunks
	}
	// T is a multiple of the number of chunks, so that a chunk's share has no fraction.
	const share = time.Second
	whole := time.Duration(c.Chunks) * share
	result := Comparison{Stages: c.Stages}
	serial, err := course{cost: units(c.Stages, whole), schedule: streams.Serial, lanes: 1, batches: 1}.run(ctx)
	if err != nil {
		return result, err
	}
	chunked, err := course{cost: units(c.Stages, share), schedule: streams.Overlapped, lanes: lanes, batches: c.Chunks}.run(ctx)
	if err != nil {
		return result, err
	}
	result.Sequential = newTimetable(serial, whole, whole, "payload").called("Serial", 1, "T", "T")
	result.Pipelined = newTimetable(chunked, share, whole, "chunk").called("In chunks", lanes, fmt.Sprintf("T/%d", c.Chunks), "T")
	result.Speedup = result.Sequential.Total / result.Pipelined.Total
	return result, nil
}
