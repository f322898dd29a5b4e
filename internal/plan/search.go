package plan

import "strconv"

// knob is a figure that a search turns, from 0 to 1.
type knob struct {
	at    float64
	tried float64 // where it is set while a search tries places
	set   func(at float64)
}

// The bounds of a search, in turns of a knob.
const (
	coarseStep = 1. / 16
	lastStep   = 1. / 512
	mostRounds = 6    // at one step
	worthwhile = 1e-9 // of miss: a turn that gains less is not made, so what nothing tells stays where it is
)

// search turns the knobs, one at a time, as long as that makes miss smaller, leaves them where it is least, and returns
// that. What miss returns depends on nothing but them. At first each knob is tried over its whole range, since most figures show
// only from some value on: a host that is faster than the engines does not show at all. Then steps become smaller.
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

// remembered is miss, and asks no second time where the knobs have been: a search comes by the same places again.
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

// try sets the knob without leaving it there.
func (k *knob) try(at float64) {
	k.tried = at
	k.set(at)
}

// places are where to try the knob: everywhere with the coarse step, and a step to either side with a finer one.
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

// turn tries the knob at those places, leaves it where miss is least, and returns that; best, where it is now, if
// no place has less.
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
