package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

func ganttOf(t *testing.T, line *telemetry.Timeline, width int) string {
	t.Helper()
	var out strings.Builder
	if err := line.RenderGantt(&out, width); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// rowOf returns the drawing of one row, without its name.
func rowOf(t *testing.T, drawing, name string) string {
	t.Helper()
	for line := range strings.Lines(drawing) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Trim(rest, " |\n")
		}
	}
	t.Fatalf("no row %s in\n%s", name, drawing)
	return ""
}

func TestGanttGolden(t *testing.T) {
	golden(t, "testdata/gantt.txt", ganttOf(t, timelineOf(pipelined("host", 30, 4)...), 80))
}

func TestGanttOfOneBatch(t *testing.T) {
	golden(t, "testdata/gantt-one.txt", ganttOf(t, timelineOf(pipelined("host", 1, 1)...), 60))
}

func TestGanttDrawsWhereOverlapIs(t *testing.T) {
	records := pipelined("host", 30, 1) // with one lane, nothing overlaps
	for _, r := range pipelined("host", 30, 4) {
		r.Batch += 30
		later(r, time.Second)
		records = append(records, r)
	}
	drawing := ganttOf(t, timelineOf(records...), 80)
	if overlap := strings.Count(rowOf(t, drawing, "overlap"), "#"); overlap < 20 {
		t.Errorf("the stretch drawn has %d columns with three engines busy:\n%s", overlap, drawing)
	}
	if serial := ganttOf(t, timelineOf(records[:30]...), 80); rowOf(t, serial, "overlap") != "" {
		t.Errorf("the drawing shows an overlap, but there is none:\n%s", serial)
	}
}

func TestGanttPicksTheDeviceThatOverlaps(t *testing.T) {
	line := timelineOf(append(pipelined("GPU-serial", 10, 1), pipelined("GPU-busy", 10, 4)...)...)
	if drawing := ganttOf(t, line, 80); !strings.HasPrefix(drawing, "GPU-busy,") {
		t.Errorf("drew\n%s", drawing)
	}
}

func TestGanttKeepsItsWidth(t *testing.T) {
	line := timelineOf(pipelined("host", 30, 4)...)
	for asked, want := range map[int]int{-1: 40, 40: 40, 80: 80, 133: 133, 1 << 30: 500} {
		drawing := ganttOf(t, line, asked)
		if got := len(rowOf(t, drawing, "compute")); got != want-12 {
			t.Errorf("width %d: %d columns of drawing, want %d", asked, got, want-12)
		}
		_, rows, _ := strings.Cut(drawing, "\n\n") // after the legend
		for text := range strings.Lines(rows) {
			if got := len(strings.TrimSuffix(text, "\n")); got > want {
				t.Errorf("width %d: a line of %d, want at most %d: %s", asked, got, want, text)
			}
		}
	}
}

// TestGanttAxis: ticks are at round numbers in a suitable unit, for every length of the axis.
func TestGanttAxis(t *testing.T) {
	for factor, want := range map[time.Duration]string{
		1:       "ms 0 2 4 6 8 10 12 14",
		10:      "ms 0 20 40 60 80 100 120",
		1000:    "s 0 2 4 6 8 10 12 14",
		1000000: "s 0 2000 4000 6000 8000 10000 12000",
	} {
		records := pipelined("host", 30, 4)
		for _, r := range records {
			eachSpan(r, func(s *streams.Span) { s.Start, s.End = s.Start*factor, s.End*factor })
		}
		lines := strings.Split(ganttOf(t, timelineOf(records...), 80), "\n")
		if got := strings.Join(strings.Fields(lines[8]), " "); got != want {
			t.Errorf("%d times as long: axis %q, want %q", factor, got, want)
		}
	}
}

func TestGanttOfNothing(t *testing.T) {
	want := "no batch has been on a device yet\n"
	never := &inflight.Record{Record: streams.Record{Device: "host", Batch: 1, Stages: [streams.NumStages]streams.Span{streams.Fill: {End: ms}}}}
	for _, line := range []*telemetry.Timeline{telemetry.NewTimeline(0), timelineOf(never)} {
		if got := ganttOf(t, line, 80); got != want {
			t.Errorf("got %q", got)
		}
	}
}
