package plan

import "strconv"

// knob is a parameter that a search varies, from 0 to 1.
type knob struct {
	at    float64
	tried float64 // the value during a trial
	set   func(at float64)
}

// The bounds of a search. Steps are parts of a knob's range.
const (
	coarseStep = 1. / 16
	lastStep   = 1. / 512
	mostRounds = 6    // at one step size
	worthwhile = 1e-9 // minimum improvement of miss; smaller improvements are ignored, so a parameter that has no effect keeps its value
)

// search varies the knobs, one at a time, as long as that reduces miss. It leaves them at the minimum that it finds and
// returns that minimum. The result of miss may depend only on the knobs. At first search tries each knob over its whole
// range, because most parameters have an effect only above some value: a host that is faster than the engines has none.
// Then the steps become smaller.
func search(knobs []*knob, miss func() (float64, error)) (best float64, err error) {
	for _, k := range knobs {
		k.try(k.at)
	}
	miss = remembered(knobs, miss)
	if best, err = miss(); err != nil {
		return best, err
	}
	for step := coarseStep; step >= lastStep; step /= 2 {
		for turned, round := true, 0; turned && round < mostRounds; round++ {
			turned = false
			for _, k := range knobs {
				got, err := k.turn(k.places(step), best, miss)
				if err != nil {
					return best, err
				}
				turned = turned || got < best
				best = got
			}
		}
	}
	return best, nil
}

// remembered returns miss with a cache, because a search tries the same values repeatedly.
func remembered(knobs []*knob, miss func() (float64, error)) func() (float64, error) {
	known := map[string]float64{}
	return func() (float64, error) {
		var place []byte
		for _, k := range knobs {
			place = strconv.AppendFloat(append(place, ' '), k.tried, 'g', -1, 64)
		}
		if m, is := known[string(place)]; is {
			return m, nil
		}
		m, err := miss()
		if err == nil {
			known[string(place)] = m
		}
		return m, err
	}
}

// try sets the knob for a trial, without changing its current value.
func (k *knob) try(at float64) {
	k.tried = at
	k.set(at)
}

// places returns the values to try: the whole range with the coarse step, and one step in each direction with a finer
// one.
func (k *knob) places(step float64) []float64 {
	if step < coarseStep {
		return []float64{min(k.at+step, 1), max(k.at-step, 0)}
	}
	var places []float64
	for at := 0.; at <= 1; at += step {
		places = append(places, at)
	}
	return places
}

// turn tries the knob at the given values and keeps the one with the smallest miss. It returns that miss, or best, the
// current miss, if no value is better.
func (k *knob) turn(places []float64, best float64, miss func() (float64, error)) (float64, error) {
	for _, at := range places {
		if at == k.at {
			continue
		}
		k.try(at)
		got, err := miss()
		if err != nil {
			return best, err
		}
		if got < best-worthwhile {
			best, k.at = got, at
		}
	}
	k.try(k.at)
	return best, nil
}
