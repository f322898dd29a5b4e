package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/streams"
)

// Timetable holds the work of one run of a schedule, divided into slots of equal length.
type Timetable struct {
	Name  string `json:"name"`  // name of the schedule, such as "Sequential"
	Lanes int    `json:"lanes"` // maximum number of batches in flight, without queued batches
	Slots []Slot `json:"slots"`

	// Total is the total duration in TotalUnit. SlotUnit is the length of a slot.
	Total     float64 `json:"total"`
	TotalUnit string  `json:"total_unit"`
	SlotUnit  string  `json:"slot_unit"`
}

// Slot lists the work in one slot, ordered by engine and then by batch. Work that is longer than a slot is in several
// slots. A slot may list several stages that one engine runs one after another.
type Slot []Work

// Work is a stage of a batch.
type Work struct {
	Stage streams.Stage
	Batch uint64 // number of the batch, from 1
	Thing string // the name for a batch, either "batch" or "chunk"
}

func (w Work) String() string { return fmt.Sprintf("%v(%s %d)", w.Stage, w.Thing, w.Batch) }

// MarshalJSON encodes the work in its printed form, such as "copy_in(batch 3)".
func (w Work) MarshalJSON() ([]byte, error) { return json.Marshal(w.String()) }

// deviceStages are the stages that run on the device.
var deviceStages = [streams.NumEngines]streams.Stage{streams.CopyIn, streams.Compute, streams.CopyOut}

// newTimetable divides the stages of the records into slots of the given length. Total is the end of the last stage, in
// multiples of unit.
func newTimetable(records []streams.Record, slot, unit time.Duration, thing string) Timetable {
	var t Timetable
	end := time.Duration(0)
	for _, stage := range deviceStages {
		for _, r := range served(records, stage) {
			span := r.Stages[stage]
			end = max(end, span.End)
			for len(t.Slots) < int((span.End+slot-1)/slot) {
				t.Slots = append(t.Slots, nil)
			}
			for at := span.Start / slot; at*slot < span.End; at++ {
				t.Slots[at] = append(t.Slots[at], Work{Stage: stage, Batch: r.Batch, Thing: thing})
			}
		}
	}
	t.Total = float64(end) / float64(unit)
	return t
}

// served returns the records in the order in which the stage ended. It shortens each span of the stage by the time that
// the stage waited for its engine. Records include that time in the kernel's span, because kernels of several lanes
// share a GPU. In a plan, each kernel has the engine to itself.
func served(records []streams.Record, stage streams.Stage) []streams.Record {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b streams.Record) int { return cmp.Compare(a.Stages[stage].End, b.Stages[stage].End) })
	free := time.Duration(0)
	for i := range records {
		s := &records[i].Stages[stage]
		s.Start = max(s.Start, free)
		free = s.End
	}
	return records
}

// Write prints each slot, as in "t=2: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)", and the total.
func (t Timetable) Write(w io.Writer) error {
	var b strings.Builder
	lanes := "1 lane"
	if t.Lanes != 1 {
		lanes = fmt.Sprintf("%d lanes", t.Lanes)
	}
	fmt.Fprintf(&b, "%s, %s, a slot is %s:\n", t.Name, lanes, t.SlotUnit)
	for at, slot := range t.Slots {
		work := make([]string, len(slot))
		for i, s := range slot {
			work[i] = s.String()
		}
		fmt.Fprintf(&b, "t=%d: %s\n", at, cmp.Or(strings.Join(work, " | "), "-"))
	}
	fmt.Fprintf(&b, "Total: %s %s\n", number(t.Total), t.TotalUnit)
	_, err := io.WriteString(w, b.String())
	return err
}

// number formats a figure with up to six decimals, without trailing zeros.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }
