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

// Timetable is a schedule as it ran, told in slots of equal length.
type Timetable struct {
	Name  string `json:"name"`  // "Sequential"
	Lanes int    `json:"lanes"` // batches in flight at once, at most, not counting those queued behind
	Slots []Slot `json:"slots"`

	// Total is how long all of it took, in TotalUnit. A slot is SlotUnit long.
	Total     float64 `json:"total"`
	TotalUnit string  `json:"total_unit"`
	SlotUnit  string  `json:"slot_unit"`
}

// Slot is what ran in one slot, by engine and then by batch. Work longer than a slot is in several; a slot may have
// several pieces of work of one engine, one after another.
type Slot []Work

// Work is a stage of a batch.
type Work struct {
	Stage streams.Stage
	Batch uint64 // from 1
	Thing string // what the batch is called: "batch", "chunk"
}

func (w Work) String() string { return fmt.Sprintf("%v(%s %d)", w.Stage, w.Thing, w.Batch) }

// MarshalJSON writes the work as it is printed: "copy_in(batch 3)".
func (w Work) MarshalJSON() ([]byte, error) { return json.Marshal(w.String()) }

// deviceStages are the stages that a device does.
var deviceStages = [streams.NumEngines]streams.Stage{streams.CopyIn, streams.Compute, streams.CopyOut}

// newTimetable sorts what ran into slots of that length. total is the end of the last stage, in units of unit.
func newTimetable(out outcome, slot, unit time.Duration, thing string) Timetable {
	var t Timetable
	end := time.Duration(0)
	for engine, stage := range deviceStages {
		for _, r := range served(out.records, stage) {
			span := r.Stages[stage]
			end = max(end, span.End)
			for len(t.Slots) < int((span.End+slot-1)/slot) {
				t.Slots = append(t.Slots, nil)
			}
			for at := span.Start / slot; at*slot < span.End; at++ {
				t.Slots[at] = append(t.Slots[at], Work{Stage: deviceStages[engine], Batch: r.Batch, Thing: thing})
			}
		}
	}
	t.Total = float64(end) / float64(unit)
	return t
}

// served gives the records in the order in which their stage ended, and its spans without the time in which the
// stage waited for its engine. A record counts that time to the kernel, since kernels of several lanes share a GPU;
// here each has the engine to itself.
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

// Write prints the slots, "t=2: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)", and the total.
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

// number writes a figure with as many decimals as it has, up to six.
func number(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }
