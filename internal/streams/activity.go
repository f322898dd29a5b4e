package streams

import (
	"cmp"
	"slices"
	"time"
)

// activity adds up how long each engine was busy, how long any was, and how long two or more were at once,
// from the stages of batches as they end. Stages arrive slightly out of order, so time is only added up
// to a mark before which nothing can arrive any more; what is later waits in open.
type activity struct {
	busy    [NumEngines]time.Duration
	any     time.Duration
	several time.Duration

	mark  time.Duration // time is added up to here
	open  []stretch
	edges []edge // scratch of advance
}

// maxOpen bounds open. Without a stuck batch it holds a few stages for each batch in flight.
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

// add notes that engine was busy during span.
func (a *activity) add(engine Engine, span Span) {
	if span.End > a.mark && span.End > span.Start {
		a.open = append(a.open, stretch{engine, span})
	}
}

// crowded says that too much waits for a mark that does not move, as when one batch is stuck while others
// pass. Then the mark moves on, and what the stuck batch did before it is not counted.
func (a *activity) crowded() bool { return len(a.open) >= maxOpen }

// advance adds everything up to mark, the earliest moment at which a stage that is still to come can start.
func (a *activity) advance(mark time.Duration) {
	if mark <= a.mark {
		return
	}
	a.edges = a.edges[:0]
	rest := a.open[:0]
	for _, s := range a.open {
		from, to := max(s.span.Start, a.mark), min(s.span.End, mark)
		if from < to {
			a.edges = append(a.edges, edge{from, s.engine, 1}, edge{to, s.engine, -1})
		}
		if s.span.End > mark {
			rest = append(rest, s)
		}
	}
	a.open = rest
	slices.SortFunc(a.edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	a.sweep()
	a.mark = mark
}

// sweep walks the edges in order of time.
func (a *activity) sweep() {
	var depth [NumEngines]int
	at := a.mark
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
