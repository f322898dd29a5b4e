package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/bench/report"
	"millrace/internal/device"
)

// newTarget creates a target for cases that don't use the device.
func newTarget(rounds int) *target {
	s := &Session{
		Options: Options{Rounds: rounds, Progress: func(string) {}}, report: &report.Report{}, explained: map[string]bool{},
		suite: deviceSuite("schedules"),
	}
	return &target{Session: s, info: device.Info{ID: "none"}}
}

// TestCasesAreMeasuredInTurns checks that every round measures each case once, followed by its baseline, all with the
// same seed.
func TestCasesAreMeasuredInTurns(t *testing.T) {
	var order []string
	seeds := map[uint64]int{}
	newCase := func(name string, reference bool) *Case {
		c := &Case{Row: report.Row{Name: name}, Reference: reference}
		c.Measure = func(_ context.Context, c *Case, seed uint64) error {
			order = append(order, name)
			seeds[seed]++
			c.seconds = append(c.seconds, float64(len(order)))
			return nil
		}
		return c
	}
	a, b, unwanted := newCase("triple", false), newCase("serial", true), newCase("double", false)
	a.baseline = newCase("baseline", false)
	tg := newTarget(2)
	tg.Rows = []string{"triple"}
	if err := tg.Measure(t.Context(), a, nil, b, unwanted); err != nil {
		t.Fatal(err)
	}
	if want := []string{"triple", "baseline", "serial", "triple", "baseline", "serial"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if len(seeds) != 2 {
		t.Errorf("%d seeds in 2 rounds", len(seeds))
	}
	a.ratio(figureSpeedup, "x", b.seconds, a.seconds)
	tg.Report(a, b, unwanted)
	if len(tg.report.Rows) != 1 || tg.report.Rows[0].Name != "triple" {
		t.Fatalf("the report has %+v", tg.report.Rows)
	}
	// Medians are compared: those of 3 and 6 with those of 1 and 4; the baseline has 2 and 5.
	for name, want := range map[string]float64{figureSpeedup: 4.5 / 2.5, figureOverBaseline: 3.5 / 2.5} {
		if f, ok := tg.report.Rows[0].Figure(name); !ok || f.Median != want || f.N != 2 {
			t.Errorf("%s is %+v, want %v", name, f, want)
		}
	}
}

// TestCasesThatCannotBeMeasuredAreDropped also checks that other errors end the run, and that all opened objects are
// closed.
func TestCasesThatCannotBeMeasuredAreDropped(t *testing.T) {
	for _, c := range []struct {
		err   error
		drops bool
	}{
		{errUnable{errors.New("too small")}, true},
		{device.Errorf("kernel", "none", device.ErrNotFound, "no such operator"), true},
		{device.Errorf("kernel", "none", device.ErrUnavailable, "no clusters"), true},
		{device.Errorf("pin", "none", device.ErrOutOfMemory, "no room"), true},
		{device.Errorf("launch", "none", device.ErrLost, "gone"), false},
		{errors.Join(errWrong{errors.New("wrong")}, errUnable{errors.New("too small")}), false},
		{device.Errorf("launch", "none", device.ErrInvalid, "a bug"), false},
	} {
		measured, closed := 0, 0
		bad := &Case{
			Row:     report.Row{Name: "triple"},
			Measure: func(context.Context, *Case, uint64) error { measured++; return c.err },
			Close:   func() error { closed++; return nil },
		}
		tg := newTarget(3)
		err := tg.Measure(t.Context(), bad)
		if (err == nil) != c.drops || measured != 1 || closed != 1 {
			t.Errorf("%v: measuring ended with %v, after %d rounds and %d closes", c.err, err, measured, closed)
		}
		if c.drops != strings.Contains(bad.Row.Skipped, c.err.Error()) {
			t.Errorf("%v: the row gives the reason %q", c.err, bad.Row.Skipped)
		}
	}
}

// TestRatiosAgreeWithTheFiguresBesideThem checks that a ratio is the quotient of the medians in the table, even if the
// ratios of the rounds have another median.
func TestRatiosAgreeWithTheFiguresBesideThem(t *testing.T) {
	serial := []float64{10, 20, 60, 61, 62}
	c := &Case{Row: report.Row{Name: "triple"}, seconds: []float64{10, 1, 20, 15, 2}} // by round: 1, 20, 3, 4.07, 31
	c.ratio(figureSpeedup, "x", serial, c.seconds)
	row := c.finished()
	f, ok := row.Figure(figureSpeedup)
	if want := median(serial) / row.Batch.Median; !ok || f.Median != want || f.Low > want || f.High < want || f.N != len(serial) {
		t.Errorf("the speedup is %+v, and the medians give %v", f, want)
	}
	if f.Low >= 3 || f.High <= 20 {
		t.Errorf("the speedup ranges from %v to %v, want percentiles of the rounds", f.Low, f.High)
	}
}

// TestRatiosNeedTheSameRounds checks that a case that was dropped after a few rounds is not compared.
func TestRatiosNeedTheSameRounds(t *testing.T) {
	for name, c := range map[string]struct{ dividend, divisor []float64 }{
		"the other was dropped":   {[]float64{1}, []float64{1, 2}},
		"this one was dropped":    {[]float64{1, 2}, []float64{1}},
		"neither was measured":    {nil, nil},
		"a round took no time":    {[]float64{1, 2}, []float64{1, 0}},
		"the other has no figure": {nil, []float64{1, 2}},
	} {
		if of, ok := ratioOf(c.dividend, c.divisor); ok {
			t.Errorf("%s: the ratio is %+v", name, of)
		}
	}
}

func TestKneeIsTheLeastNearTheBest(t *testing.T) {
	row := func(lanes int, seconds ...float64) *Case {
		return &Case{Row: report.Row{Lanes: lanes}, seconds: seconds}
	}
	skipped := row(1, 0.5)
	skipped.Row.Skipped = "no room"
	k := knee([]*Case{skipped, row(2, 2), row(3, 1.019), row(4, 1), row(6, 1.1)})
	if k == nil || k.Row.Lanes != 3 {
		t.Errorf("the knee is %+v, want 3 lanes", k)
	}
	if k := knee([]*Case{skipped}); k != nil {
		t.Errorf("without figures the knee is %+v", k)
	}
}
