package plan

import (
	"math"
	"testing"
	"time"

	"millrace/internal/device/sim"
)

// pointsOf returns the points that a cost gives for the sizes.
func pointsOf(c sim.Cost, sizes ...int) (points []point) {
	for _, n := range sizes {
		points = append(points, point{n, timeOf(c, n).Seconds(), 1})
	}
	return points
}

func TestFitGivesACostBack(t *testing.T) {
	for name, want := range map[string]sim.Cost{
		"latency and rate": {Latency: 3 * time.Microsecond, BytesPerSecond: 50e9},
		"rate alone":       {BytesPerSecond: 7e9},
		"latency alone":    {Latency: 20 * time.Microsecond},
	} {
		for _, sizes := range [][]int{{mib, 16 * mib}, {64 << 10, mib, 4 * mib, 64 * mib}} {
			got := fitCost(pointsOf(want, sizes...))
			for _, n := range append(sizes, 8*mib) {
				// Times are whole nanoseconds, and so is the latency.
				if a, b := timeOf(got, n), timeOf(want, n); math.Abs(float64(a-b)) > 1+1e-4*float64(b) {
					t.Errorf("%s from %v: %d bytes take %v, want %v (%+v)", name, sizes, n, a, b, got)
				}
			}
		}
	}
}

func TestFitOfOneSizeHasNoLatency(t *testing.T) {
	got := fitCost([]point{{mib, 1e-3, 3}, {mib, 1e-3, 1}})
	if got.Latency != 0 || math.Abs(got.BytesPerSecond/(mib*1e3)-1) > 1e-9 {
		t.Errorf("cost %+v, want a rate of %d B/s alone", got, mib*1000)
	}
}

// Points that curve the wrong way would give a negative latency or rate.
func TestFitIsNeverNegative(t *testing.T) {
	for _, points := range [][]point{
		{{mib, 1e-5, 1}, {16 * mib, 1e-3, 1}}, // a line through them has a negative latency
		{{mib, 2e-3, 1}, {16 * mib, 1e-3, 1}}, // the larger one takes less time
	} {
		got := fitCost(points)
		if got.Latency < 0 || got.BytesPerSecond < 0 || math.IsInf(got.BytesPerSecond, 0) || timeOf(got, 4*mib) <= 0 {
			t.Errorf("%v gives %+v", points, got)
		}
	}
}

// A size has the weight of the number of samples in its median.
func TestFitWeighs(t *testing.T) {
	got := timeOf(fitCost([]point{{mib, 1e-3, 1}, {mib, 2e-3, 1000}}), mib)
	if got < 1900*time.Microsecond || got > 2*time.Millisecond {
		t.Errorf("the fit gives %v, want nearly the 2ms that a thousand samples say", got)
	}
}
