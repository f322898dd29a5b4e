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

// ganttMarks are the characters that represent batches. They rotate, so that neighbours differ.
const ganttMarks = "123456789abcdefghijklmnopqrstuvwxyz"

// Characters for idle time, and for the row that counts busy engines.
const (
	idleMark  = '.'
	twoMark   = '='
	threeMark = '#'
)

// RenderGantt draws the part of the timeline in which a device's engines overlapped most, in ASCII and at most width
// columns (limited to the range from 40 to 500). The drawing has one row per engine, with each batch as a run of one
// digit or letter, a row that shows overlap, and a time axis. If no batch has been on a device yet, RenderGantt writes
// a line that says so.
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
	writeRow(&out, "overlap", s.overlapMarks(columns))
	writeAxis(&out, s.span.Duration(), columns)
	fmt.Fprintf(&out, "\n%c two engines busy, %c all three\n", twoMark, threeMark)
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

// draw fills a row of columns for each engine. A column shows the batch that takes most of it.
func (s stretch) draw(columns int) (rows [streams.NumEngines][]byte) {
	for e, stage := range engineStages {
		row := bytes.Repeat([]byte{idleMark}, columns)
		most := make([]time.Duration, columns)
		for i := range s.records {
			s.mark(row, most, s.records[i].Stages[stage], ganttMarks[i%len(ganttMarks)])
		}
		rows[e] = row
	}
	return rows
}

// mark draws one span. The slice most holds, for each column, how much of it the drawn batch takes.
func (s stretch) mark(row []byte, most []time.Duration, span streams.Span, with byte) {
	start, end := max(span.Start, s.span.Start), min(span.End, s.span.End)
	if start >= end {
		return
	}
	columns := len(row)
	for c := s.column(start, columns); c < columns && s.edge(c, columns) < end; c++ {
		share := min(end, s.edge(c+1, columns)) - max(start, s.edge(c, columns))
		if share > most[c] {
			most[c], row[c] = share, with
		}
	}
}

// edge returns when a column begins.
func (s stretch) edge(column, columns int) time.Duration {
	return s.span.Start + time.Duration(float64(s.span.Duration())*float64(column)/float64(columns))
}

// column returns the column that contains the time or, due to rounding, the one before.
func (s stretch) column(at time.Duration, columns int) int {
	c := int(float64(at-s.span.Start) / float64(s.span.Duration()) * float64(columns))
	return min(max(c, 0), columns-1)
}

// overlapMarks shows how many engines are busy in the middle of each column. It uses the times, because two consecutive
// batches can share a column of the drawing.
func (s stretch) overlapMarks(columns int) []byte {
	marks := bytes.Repeat([]byte{' '}, columns)
	for c := range marks {
		middle := (s.edge(c, columns) + s.edge(c+1, columns)) / 2
		switch s.busyAt(middle) {
		case 2:
			marks[c] = twoMark
		case 3:
			marks[c] = threeMark
		}
	}
	return marks
}

// busyAt counts the engines that are busy at a given time.
func (s stretch) busyAt(at time.Duration) (engines int) {
	for _, stage := range engineStages {
		if slices.ContainsFunc(s.records, func(r inflight.Record) bool {
			span := r.Stages[stage]
			return span.Start <= at && at < span.End
		}) {
			engines++
		}
	}
	return engines
}

func writeRow(out *bytes.Buffer, name string, row []byte) {
	fmt.Fprintf(out, "%-*s|%s|\n", ganttNameWidth, name, row)
}

// ganttTick is the minimum number of columns between two ticks of the axis. That is enough for a number.
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

// stretchBatches is the length of a stretch, in multiples of a batch's time on the device. It is long enough to show
// the rhythm and short enough that a batch is several characters wide.
const stretchBatches = 3

// stretch is a section of one device's timeline.
type stretch struct {
	device  string
	span    streams.Span
	records []inflight.Record // batches with a busy engine within span, ordered by the start of their copy in
}

// busiest returns the stretch with the most overlap of engines, over all devices. Three engines at once count more than
// two. Stages that took far longer than usual don't count, because they show a pause of the host rather than the
// rhythm. It returns false if no batch has been on a device yet.
func (t *Timeline) busiest() (stretch, bool) {
	var best stretch
	most := -1.0
	devices, _ := t.snapshot()
	for _, d := range devices {
		bars := d.engineBars()
		if len(bars) == 0 {
			continue
		}
		rhythm := usual(bars)
		length := min(stretchLength(d.records), lengthOf(rhythm))
		for _, b := range bars {
			s := streams.Span{Start: b.span.Start, End: b.span.Start + length}
			share := overlap(rhythm, s).Seconds() / length.Seconds()
			if share > most {
				most = share
				best = stretch{device: d.id, span: s, records: d.records}
			}
		}
	}
	if most < 0 {
		return stretch{}, false
	}
	best.records = within(best.records, best.span)
	return best, true
}

// engineBars returns the device stages of all batches in order of time, without those of length zero.
func (d deviceTimeline) engineBars() (bars []bar) {
	for _, t := range engineTracks(d.records) {
		bars = append(bars, t.bars...)
	}
	bars = slices.DeleteFunc(bars, func(b bar) bool { return b.span.Duration() <= 0 })
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(a.span.Start, b.span.Start) })
	return bars
}

// unusual is the multiple of its stage's median above which a bar is ignored.
const unusual = 4

// usual returns the bars with about the usual duration for their stage.
func usual(bars []bar) []bar {
	var times [inflight.NumStages][]time.Duration
	for _, b := range bars {
		times[b.stage] = append(times[b.stage], b.span.Duration())
	}
	for _, t := range times {
		slices.Sort(t)
	}
	return slices.DeleteFunc(slices.Clone(bars), func(b bar) bool {
		t := times[b.stage]
		return b.span.Duration() > unusual*t[len(t)/2]
	})
}

// stretchLength returns stretchBatches times the median time that batches spend on the device.
func stretchLength(records []inflight.Record) time.Duration {
	var times []time.Duration
	for i := range records {
		if d := onDevice(&records[i]).Duration(); d > 0 {
			times = append(times, d)
		}
	}
	slices.Sort(times)
	return stretchBatches * times[len(times)/2]
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

// lengthOf returns the time from the start of the first bar to the end of the last.
func lengthOf(bars []bar) time.Duration {
	whole := bars[0].span
	for _, b := range bars {
		whole.Start, whole.End = min(whole.Start, b.span.Start), max(whole.End, b.span.End)
	}
	return whole.Duration()
}

// weights maps the number of busy engines to the weight of the time with that number.
var weights = [streams.NumEngines + 1]time.Duration{2: 1, 3: 4}

// overlap returns the weighted time within the span in which engines were busy at once. The bars are in order of time. It is
// only used to choose what to draw; published values come from the pipeline.
func overlap(bars []bar, within streams.Span) (weighted time.Duration) {
	type change struct {
		at     time.Duration
		engine inflight.Stage
		step   int
	}
	var changes []change
	for _, b := range bars {
		if b.span.Start >= within.End {
			break
		}
		if b.span.End > within.Start {
			changes = append(changes, change{max(b.span.Start, within.Start), b.stage, 1}, change{min(b.span.End, within.End), b.stage, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var running [inflight.NumStages]int // number of current bars on each engine
	before := within.Start
	for _, now := range changes {
		busy := 0
		for _, current := range running {
			busy += min(current, 1)
		}
		weighted += weights[busy] * (now.at - before)
		before = now.at
		running[now.engine] += now.step
	}
	return weighted
}
