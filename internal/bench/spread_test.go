package bench

import (
	"errors"
	"testing"
	"time"

	"millrace/internal/bench/report"
)

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

// TestPace repeats work that takes exactly a microsecond.
// TestSpreadOfEqualValuesIsTheirValue: rounding must not put a percentile on the wrong side of the median.
func TestSpreadOfEqualValuesIsTheirValue(t *testing.T) {
	for _, v := range []float64{2.143e-06, 0.1, 1.0 / 3} {
		if s := spread([]float64{v, v}); s.Low != v || s.Median != v || s.High != v {
			t.Errorf("twice %v is %v", v, s)
		}
	}
}

func TestPace(t *testing.T) {
	tried := 0
	work := func(n int) (time.Duration, error) {
		tried = n
		return time.Duration(n) * time.Microsecond, nil
	}
	for _, c := range []struct {
		turn  time.Duration
		least int
		want  int
	}{{time.Millisecond, 1, 1000}, {time.Microsecond, 50, 50}, {time.Hour, 1, maxTimes}} {
		got, err := pace(c.turn, c.least, maxTimes, work)
		if err != nil || got != c.want {
			t.Errorf("%v, at least %d: %d times, error %v, want %d", c.turn, c.least, got, err, c.want)
		}
		if tried > maxTimes {
			t.Errorf("%d were tried at once", tried)
		}
	}
	broken := errors.New("broken")
	if _, err := pace(time.Second, 1, maxTimes, func(int) (time.Duration, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
