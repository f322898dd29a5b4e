package streams

import (
	"cmp"
	"slices"
	"time"
)

// activity adds up how long each engine was busy, how long any engine was busy, and how long two or more were busy at
// once. Its input is the stages of completed batches, which arrive slightly out of order. So it only adds up time
// before the horizon, the moment before which no further stage can start. Later stages wait in open.
type activity struct {
	busy    [NumEngines]time.Duration
	any     time.Duration
	several time.Duration

	horizon time.Duration // time is added up to here
	open    []stretch
	edges   []edge // scratch buffer of advance
}

// maxOpen bounds open. Unless a batch is stuck, open holds a few stages for each batch in flight.
const maxOpen = 4096

type stretch struct {
	engine Engine
	span   Span
}

type edge struct {
	at     time.Duration
	engine Engine
	step   int // +1 where an engine starts, -1 where it stops
}

// add records that engine was busy during span.
func (a *activity) add(engine Engine, span Span) {
	if span.End > a.horizon && span.End > span.Start {
		a.open = append(a.open, stretch{engine, span})
	}
}

// crowded reports whether open has reached its bound, which happens when one batch is stuck while others complete. The
// horizon then advances anyway, and the stuck batch's earlier work isn't counted.
func (a *activity) crowded() bool { return len(a.open) >= maxOpen }

// advance adds up all time before horizon, the earliest moment at which a stage that has not arrived yet can start.
func (a *activity) advance(horizon time.Duration) {
	if horizon <= a.horizon {
		return
	}
	a.edges = a.edges[:0]
	rest := a.open[:0]
	for _, s := range a.open {
		from, to := max(s.span.Start, a.horizon), min(s.span.End, horizon)
		if from < to {
			a.edges = append(a.edges, edge{from, s.engine, 1}, edge{to, s.engine, -1})
		}
		if s.span.End > horizon {
			rest = append(rest, s)
		}
	}
	a.open = rest
	slices.SortFunc(a.edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	a.sweep()
	a.horizon = horizon
}

// sweep walks the edges in order of time and adds up the busy intervals between them.
func (a *activity) sweep() {
	var depth [NumEngines]int
	at := a.horizon
	for _, e := range a.edges {
		if gone := e.at - at; gone > 0 {
			running := 0
			for engine, d := range depth {
				if d > 0 {
					running++
					a.busy[engine] += gone
				}
			}
			if running > 0 {
				a.any += gone
			}
			if running > 1 {
				a.several += gone
			}
			at = e.at
		}
		depth[e.engine] += e.step
	}
}
