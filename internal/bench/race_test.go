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

// newTarget is a target for races that touch no device.
func newTarget(rounds int) *target {
	s := &session{Options: Options{Rounds: rounds, Progress: func(string) {}}, report: &report.Report{}, explained: map[string]bool{}}
	return &target{session: s, info: device.Info{ID: "none"}}
}

// TestRaceTakesTurns: every round measures each contender once, with its rival behind it, all over the same seed.
func TestRaceTakesTurns(t *testing.T) {
	var order []string
	seeds := map[uint64]int{}
	newContender := func(name string, base bool) *contender {
		c := &contender{row: report.Row{Group: "schedules", Name: name}, base: base}
		c.measure = func(_ context.Context, c *contender, seed uint64) error {
			order = append(order, name)
			seeds[seed]++
			c.seconds = append(c.seconds, float64(len(order)))
			return nil
		}
		return c
	}
	a, b, unwanted := newContender("triple", false), newContender("serial", true), newContender("double", false)
	a.rival = newContender("yardstick", false)
	tg := newTarget(2)
	tg.Rows = []string{"triple"}
	if err := tg.race(t.Context(), a, nil, b, unwanted); err != nil {
		t.Fatal(err)
	}
	if want := []string{"triple", "yardstick", "serial", "triple", "yardstick", "serial"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if len(seeds) != 2 {
		t.Errorf("%d seeds in 2 rounds", len(seeds))
	}
	a.compare(figureSpeedup, "x", b.seconds, a.seconds)
	tg.finish(a, b, unwanted)
	if len(tg.report.Rows) != 1 || tg.report.Rows[0].Name != "triple" {
		t.Fatalf("the report has %+v", tg.report.Rows)
	}
	// Rounds are compared with themselves: 3/1 and 6/4; the yardstick 2/1 and 5/4.
	for name, want := range map[string]float64{figureSpeedup: 2.25, figureYardstick: 1.625} {
		if f, ok := tg.report.Rows[0].Figure(name); !ok || f.Median != want || f.N != 2 {
			t.Errorf("%s is %+v, want %v", name, f, want)
		}
	}
}

// TestRaceDropsWhatCannotBeMeasured and ends with what must not go wrong; whatever was opened is closed.
func TestRaceDropsWhatCannotBeMeasured(t *testing.T) {
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
		bad := &contender{
			row:     report.Row{Group: "schedules", Name: "triple"},
			measure: func(context.Context, *contender, uint64) error { measured++; return c.err },
			close:   func() error { closed++; return nil },
		}
		tg := newTarget(3)
		err := tg.race(t.Context(), bad)
		if (err == nil) != c.drops || measured != 1 || closed != 1 {
			t.Errorf("%v: the race ended with %v, after %d measurements and %d closes", c.err, err, measured, closed)
		}
		if c.drops != strings.Contains(bad.row.Skipped, c.err.Error()) {
			t.Errorf("%v: the row gives the reason %q", c.err, bad.row.Skipped)
		}
	}
}

func TestKneeIsTheLeastNearTheBest(t *testing.T) {
	row := func(lanes int, seconds ...float64) *contender {
		return &contender{row: report.Row{Lanes: lanes}, seconds: seconds}
	}
	skipped := row(1, 0.5)
	skipped.row.Skipped = "no room"
	k := knee([]*contender{skipped, row(2, 2), row(3, 1.019), row(4, 1), row(6, 1.1)})
	if k == nil || k.row.Lanes != 3 {
		t.Errorf("the knee is %+v, want 3 lanes", k)
	}
	if k := knee([]*contender{skipped}); k != nil {
		t.Errorf("without figures the knee is %+v", k)
	}
}
