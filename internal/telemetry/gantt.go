package telemetry

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Bounds of the drawing's width, and the width of the row names, in characters.
const (
	minGanttWidth  = 40
	maxGanttWidth  = 500
	ganttNameWidth = 10
)

// ganttMarks are the characters that represent batches. Each batch uses the next character, so neighbours differ.
const ganttMarks = "123456789abcdefghijklmnopqrstuvwxyz"

// idleMark represents idle time of an engine.
const idleMark = '.'

// overlapMarks are the characters of the row "overlap", indexed by the number of busy engines.
const overlapMarks = "  =#"

// RenderGantt draws the part of the timeline in which a device's engines overlapped most. The drawing is in ASCII and
// at most width columns wide, limited to the range from 40 to 500. It has one row per engine, in which each batch is a
// run of one digit or letter. Below these rows are a row that shows the overlap, and a time axis. If no batch has been
// on a device yet, RenderGantt writes a line with that information.
func (t *Timeline) RenderGantt(w io.Writer, width int) error {
	s, ok := t.busiest()
	if !ok {
		_, err := io.WriteString(w, "no batch has been on a device yet\n")
		return err
	}
	columns := min(max(width, minGanttWidth), maxGanttWidth) - ganttNameWidth - 2
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s, the %v with the most overlap\n", s.device, roundTo3(s.span.Duration()))
	fmt.Fprintf(&out, "%s\n\n", s.legend())
	rows := s.draw(columns)
	for e := range streams.NumEngines {
		writeRow(&out, e.String(), rows[e])
	}
	writeRow(&out, "overlap", rows[overlapRow])
	writeAxis(&out, s.span.Duration(), columns)
	out.WriteString("\n= two engines busy, # all three\n")
	_, err := w.Write(out.Bytes())
	return err
}

// legend lists the mark and number of each batch.
func (s stretch) legend() string {
	n := len(s.records)
	first, last := s.records[0].Batch, s.records[n-1].Batch
	switch {
	case n == 1:
		return fmt.Sprintf("batch %d drawn as 1", first)
	case n > len(ganttMarks):
		return fmt.Sprintf("batches %d to %d drawn as 1 to z, again and again", first, last)
	}
	return fmt.Sprintf("batches %d to %d drawn as 1 to %c", first, last, ganttMarks[n-1])
}

// overlapRow is the row of a drawing that shows the overlap. The rows before it show the engines.
const overlapRow = streams.NumEngines

// draw returns the rows of a drawing. Each column shows the moment in its middle.
func (s stretch) draw(columns int) (rows [streams.NumEngines + 1][]byte) {
	for c := range columns {
		at := s.span.Start + time.Duration(float64(s.span.Duration())*(float64(c)+0.5)/float64(columns))
		busy := 0
		for e, stage := range engineStages {
			mark := byte(idleMark)
			i := slices.IndexFunc(s.records, func(r inflight.Record) bool { return r.Stages[stage].Start <= at && at < r.Stages[stage].End })
			if i >= 0 {
				mark = ganttMarks[i%len(ganttMarks)]
				busy++
			}
			rows[e] = append(rows[e], mark)
		}
		rows[overlapRow] = append(rows[overlapRow], overlapMarks[busy])
	}
	return rows
}

func writeRow(out *bytes.Buffer, name string, row []byte) {
	fmt.Fprintf(out, "%-*s|%s|\n", ganttNameWidth, name, row)
}

// ganttTick is the minimum number of columns between two ticks of the axis. A number fits into these columns.
const ganttTick = 8

// writeAxis draws the time since the start of the stretch, with ticks at round numbers.
func writeAxis(out *bytes.Buffer, length time.Duration, columns int) {
	line := bytes.Repeat([]byte{'-'}, columns)
	figures := bytes.Repeat([]byte{' '}, columns)
	step := roundStep(length * ganttTick / time.Duration(columns))
	unit, name := axisUnit(step)
	for at := time.Duration(0); at < length; at += step {
		c := min(int(float64(at)/float64(length)*float64(columns)+0.5), columns-1)
		line[c] = '+'
		if figure := fmt.Sprint(int64(at / unit)); len(figure) <= columns-c { // a truncated number would be wrong
			copy(figures[c:], figure)
		}
	}
	fmt.Fprintf(out, "%-*s %s\n", ganttNameWidth, "", line)
	fmt.Fprintf(out, "%-*s %s\n", ganttNameWidth, name, bytes.TrimRight(figures, " "))
}

// roundStep returns the smallest of 1, 2, 5, 10, 20, 50 ... nanoseconds that is at least d.
func roundStep(d time.Duration) time.Duration {
	for decade := time.Duration(1); ; decade *= 10 {
		for _, digit := range []time.Duration{1, 2, 5} {
			if digit*decade >= d {
				return digit * decade
			}
		}
	}
}

// axisUnit returns the largest unit in which the step is a whole number.
func axisUnit(step time.Duration) (time.Duration, string) {
	switch {
	case step >= time.Second:
		return time.Second, "s"
	case step >= time.Millisecond:
		return time.Millisecond, "ms"
	case step >= time.Microsecond:
		return time.Microsecond, "us"
	}
	return time.Nanosecond, "ns"
}

// roundTo3 rounds a duration to three digits.
func roundTo3(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// stretchBatches is the length of a stretch, in multiples of a batch's time on the device. Each batch is then several
// characters wide.
const stretchBatches = 3

// stretch is a section of one device's timeline.
type stretch struct {
	device  string
	span    streams.Span
	records []inflight.Record // batches with a busy engine within span, ordered by the start of their copy in
}

// stretchTries is the approximate number of stretches that are compared per device.
const stretchTries = 64

// busiest returns the stretch with the most overlap of engines, over all devices. It compares about stretchTries
// stretches per device, evenly distributed over its batches. found is false if no batch has been on a device yet.
func (t *Timeline) busiest() (best stretch, found bool) {
	longest := -1
	devices, _ := t.snapshot()
	for _, d := range devices {
		records := slices.DeleteFunc(d.records, func(r inflight.Record) bool { return onDevice(&r).Duration() <= 0 })
		if len(records) == 0 {
			continue
		}
		length := stretchLength(records)
		for i := 0; i < len(records); i += 1 + len(records)/stretchTries {
			start := onDevice(&records[i]).Start
			s := stretch{device: d.id, span: streams.Span{Start: start, End: start + length}}
			s.records = within(records, s.span)
			if overlap := s.overlap(); overlap > longest {
				longest, best, found = overlap, s, true
			}
		}
	}
	return best, found
}

// overlap returns a score for the overlap of the engines. Three busy engines score more than two.
func (s stretch) overlap() int {
	marks := s.draw(minGanttWidth)[overlapRow]
	return bytes.Count(marks, []byte{overlapMarks[2]}) + 4*bytes.Count(marks, []byte{overlapMarks[3]})
}

// stretchLength returns stretchBatches times the median time of a batch on the device. It returns at most the time from
// the first batch's start to the last batch's end.
func stretchLength(records []inflight.Record) time.Duration {
	var times []time.Duration
	first, last := onDevice(&records[0]).Start, time.Duration(0)
	for i := range records {
		span := onDevice(&records[i])
		times = append(times, span.Duration())
		first, last = min(first, span.Start), max(last, span.End)
	}
	slices.Sort(times)
	return min(stretchBatches*times[len(times)/2], last-first)
}

// onDevice returns a batch's time from the start of its copy in to the end of its copy out.
func onDevice(r *inflight.Record) streams.Span {
	device := inflight.Record{}
	for _, stage := range engineStages {
		device.Stages[stage] = r.Stages[stage]
	}
	return device.Extent()
}

// within returns the batches that have a busy engine within the span.
func within(records []inflight.Record, span streams.Span) []inflight.Record {
	var in []inflight.Record
	for _, r := range records {
		for _, stage := range engineStages {
			if s := r.Stages[stage]; s.Start < span.End && s.End > span.Start {
				in = append(in, r)
				break
			}
		}
	}
	slices.SortFunc(in, func(a, b inflight.Record) int {
		return cmp.Or(cmp.Compare(onDevice(&a).Start, onDevice(&b).Start), cmp.Compare(a.Batch, b.Batch))
	})
	return in
}
