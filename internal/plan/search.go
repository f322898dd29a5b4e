package plan

import (
	"fmt"
	"math"
	"slices"
)

// knob sets a parameter of the model, to a value from 0 to 1 of its range.
type knob func(at float64)

// The bounds of a search. Steps are parts of a knob's range.
const (
	coarseStep = 1. / 16
	lastStep   = 1. / 512
	mostRounds = 6    // at one step size
	worthwhile = 1e-9 // minimum improvement of miss; smaller improvements are ignored, so a parameter that has no effect keeps its value
)

// search varies the knobs, one at a time, as long as that reduces miss, and returns the smallest miss. It starts with
// the values in at. At the end, the knobs and at have the values of that minimum. The result of miss may depend only on
// the knobs. From enough on, miss may return any value that is not less than enough. At first search tries each knob over its
// whole range, because most parameters have an effect only above some value: a host that is faster than the engines has
// none. Then the steps become smaller.
func search(knobs []knob, at []float64, miss func(enough float64) (float64, error)) (best float64, err error) {
	best = math.Inf(1)
	known := map[string]float64{} // a search tries the same values repeatedly
	try := func(values []float64) (float64, error) {
		for i, turn := range knobs {
			turn(values[i])
		}
		key := fmt.Sprint(values)
		if got, is := known[key]; is {
			return got, nil
		}
		got, err := miss(best - worthwhile)
		known[key] = got
		return got, err
	}
	if best, err = try(at); err != nil {
		return best, err
	}
	for step := coarseStep; step >= lastStep; step /= 2 {
		for better, round := true, 0; better && round < mostRounds; round++ {
			better = false
			for i := range knobs {
				for _, value := range places(at[i], step) {
					trial := slices.Clone(at)
					trial[i] = value
					got, err := try(trial)
					if err != nil {
						return best, err
					}
					if got < best-worthwhile {
						best, at[i], better = got, value, true
					}
				}
			}
		}
	}
	_, err = try(at)
	return best, err
}

// places returns the values of a knob to try: the whole range with the coarse step, and one step in each direction with a
// finer one.
func places(at, step float64) []float64 {
	if step < coarseStep {
		return []float64{min(at+step, 1), max(at-step, 0)}
	}
	var values []float64
	for value := 0.; value <= 1; value += step {
		values = append(values, value)
	}
	return values
}
