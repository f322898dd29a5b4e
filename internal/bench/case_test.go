package bench

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
)

// idleSession returns a session of the suite schedules without devices.
func idleSession(rounds int) *Session {
	s := newSession(Options{Rounds: rounds, Out: io.Discard, Progress: func(string) {}})
	s.suite = scheduleSuite
	return s
}

// TestCasesAreMeasuredInTurns checks that every round measures each case once, and uses one seed for all cases.
func TestCasesAreMeasuredInTurns(t *testing.T) {
	var order []string
	seeds := map[uint64]int{}
	newCase := func(name string) *Case {
		c := &Case{Row: report.Row{Name: name}}
		c.Measure = func(_ context.Context, c *Case, seed uint64) error {
			order = append(order, name)
			seeds[seed]++
			c.seconds = append(c.seconds, float64(len(order)))
			return nil
		}
		return c
	}
	a, b, copied, unwanted := newCase("triple"), newCase("serial"), newCase("pinned-both"), newCase("double")
	b.Reference, copied.hidden = true, true
	a.ratio(overSerial, b.batch, a.batch)
	s := idleSession(2)
	s.Rows = []string{"triple"}
	if err := s.Measure(t.Context(), a, nil, b, copied, unwanted); err != nil {
		t.Fatal(err)
	}
	if want := []string{"triple", "serial", "pinned-both", "triple", "serial", "pinned-both"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if len(seeds) != 2 {
		t.Errorf("%d seeds in 2 rounds", len(seeds))
	}
	s.Rows = nil // drop the rows of hidden cases
	s.Report(a, b, copied)
	if len(s.report.Rows) != 2 || s.report.Rows[0].Name != "triple" || s.report.Rows[1].Name != "serial" {
		t.Fatalf("the report has %+v", s.report.Rows)
	}
	// The comparison uses medians: of 2 and 5, and of 1 and 4.
	if f, ok := s.report.Rows[0].Figure(overSerial.name); !ok || f.Median != 3.5/2.5 || f.N != 2 {
		t.Errorf("the speedup is %+v, want %v", f, 3.5/2.5)
	}
}

// fakeWork takes one second per repetition. If fails is set, opening it fails.
type fakeWork struct {
	fails          error
	opened, closed int
}

func (f *fakeWork) open(context.Context, uint64) error { f.opened++; return f.fails }
func (f *fakeWork) minTimes() int                      { return 2 }
func (f *fakeWork) run(_ context.Context, n int) (time.Duration, error) {
	return time.Duration(n) * time.Second, nil
}
func (f *fakeWork) finish(*Case) error { return nil }
func (f *fakeWork) close() error       { f.closed++; return nil }

// TestRepeatedWorkTakesATurn checks that the time of a round is divided by its repetitions.
func TestRepeatedWorkTakesATurn(t *testing.T) {
	c, w := &Case{}, &fakeWork{}
	for range 2 {
		if err := repeat(w, 10*time.Second)(t.Context(), c, 1); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(c.seconds, []float64{1, 1}) || c.Row.Batches != 20 || w.closed != 2 {
		t.Errorf("two rounds of 10 seconds made %d batches of %v seconds, and were closed %d times", c.Row.Batches, c.seconds, w.closed)
	}
}

// TestCasesThatCannotBeMeasuredAreDropped also checks that any other error ends the run, and that all opened objects
// are closed.
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
		w := &fakeWork{fails: c.err}
		bad := &Case{Row: report.Row{Name: "triple"}, Measure: repeat(w, time.Second)}
		err := idleSession(3).Measure(t.Context(), bad)
		if (err == nil) != c.drops || w.opened != 1 || w.closed != 1 {
			t.Errorf("%v: measuring ended with %v, after %d rounds and %d closes", c.err, err, w.opened, w.closed)
		}
		if c.drops != strings.Contains(bad.Row.Skipped, c.err.Error()) {
			t.Errorf("%v: the row gives the reason %q", c.err, bad.Row.Skipped)
		}
	}
}

// TestRatiosAgreeWithTheFiguresBesideThem checks that a ratio is the quotient of the table's medians, even if the rounds' ratios have
// another median.
func TestRatiosAgreeWithTheFiguresBesideThem(t *testing.T) {
	serial := []float64{10, 20, 60, 61, 62}
	c := &Case{Row: report.Row{Name: "triple"}, seconds: []float64{10, 1, 20, 15, 2}} // ratios per round: 1, 20, 3, 4.07, 31
	c.ratio(overSerial, func() []float64 { return serial }, c.batch)
	s := idleSession(1)
	s.Report(c)
	row := s.report.Rows[0]
	f, ok := row.Figure(overSerial.name)
	if want := median(serial) / row.Batch.Median; !ok || f.Median != want || f.Low > want || f.High < want || f.N != len(serial) {
		t.Errorf("the speedup is %+v, and the medians give %v", f, want)
	}
	if f.Low >= 3 || f.High <= 20 {
		t.Errorf("the speedup ranges from %v to %v, want percentiles of the rounds", f.Low, f.High)
	}
}

// TestRatiosNeedTheSameRounds checks that the report doesn't compare a case that was dropped after a few rounds.
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
	k := kneeOf([]*Case{skipped, row(2, 2), row(3, 1.019), row(4, 1), row(6, 1.1)})
	if k == nil || k.Row.Lanes != 3 {
		t.Errorf("the knee is %+v, want 3 lanes", k)
	}
	if k := kneeOf([]*Case{skipped}); k != nil {
		t.Errorf("without figures the knee is %+v", k)
	}
}

func TestSpread(t *testing.T) {
	samples := []float64{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	if got, want := spread(samples), (report.Spread{Median: 6, Low: 2, High: 10, N: 11}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := spread([]float64{3}), (report.Spread{Median: 3, Low: 3, High: 3, N: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := Percentile([]float64{4, 1}, 0.5); got != 2.5 {
		t.Errorf("the middle of 1 and 4 is %v", got)
	}
	if samples[0] != 11 {
		t.Error("the samples were reordered")
	}
}

// TestSpreadOfEqualValuesIsTheirValue checks that rounding doesn't move a percentile past the median.
func TestSpreadOfEqualValuesIsTheirValue(t *testing.T) {
	for _, v := range []float64{2.143e-06, 0.1, 1.0 / 3} {
		if s := spread([]float64{v, v}); s.Low != v || s.Median != v || s.High != v {
			t.Errorf("twice %v is %v", v, s)
		}
	}
}

// TestPace repeats work that takes exactly one microsecond.
func TestPace(t *testing.T) {
	tried := 0
	work := func(n int) (time.Duration, error) {
		tried = n
		return time.Duration(n) * time.Microsecond, nil
	}
	for _, c := range []struct {
		turn time.Duration
		min  int
		want int
	}{{time.Millisecond, 1, 1000}, {time.Microsecond, 50, 50}, {time.Hour, 1, maxTimes}} {
		got, err := (&Case{}).Pace(c.turn, c.min, maxTimes, work)
		if err != nil || got != c.want {
			t.Errorf("%v, at least %d: %d times, error %v, want %d", c.turn, c.min, got, err, c.want)
		}
		if tried > maxTimes {
			t.Errorf("%d were tried at once", tried)
		}
	}
	broken := errors.New("broken")
	if _, err := (&Case{}).Pace(time.Second, 1, maxTimes, func(int) (time.Duration, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

func TestClockIsComparedWithoutTheCostOfWaiting(t *testing.T) {
	empty := stageTimes{byClock: []float64{5, 3}, byEvents: []float64{1, 1}} // the waiting alone takes 4 and 2
	of, ok := stageTimes{byClock: []float64{16, 14}, byEvents: []float64{10, 10}}.clockOverEvents(empty)
	if want := (report.Spread{Median: 1.2, Low: 1.2, High: 1.2, N: 2}); !ok || of != want {
		t.Errorf("got %+v, %v, want %+v", of, ok, want)
	}
	if _, ok := (stageTimes{byClock: []float64{16}, byEvents: []float64{10}}).clockOverEvents(empty); ok {
		t.Error("different rounds are compared")
	}
}
