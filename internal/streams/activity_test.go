package streams

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// figures holds the results of the model, which counts each tick of time separately.
type figures struct {
	busy         [NumEngines]time.Duration
	any, several time.Duration
}

// countTicks is the model. Spans are whole ticks, and a tick is busy if a span covers it.
func countTicks(spans []stretch, from, to time.Duration) (f figures) {
	for at := from; at < to; at++ {
		var on [NumEngines]bool
		for _, s := range spans {
			on[s.engine] = on[s.engine] || s.span.Start <= at && at < s.span.End
		}
		running := 0
		for e, busy := range on {
			if busy {
				running++
				f.busy[e]++
			}
		}
		if running > 0 {
			f.any++
		}
		if running > 1 {
			f.several++
		}
	}
	return f
}

func (a *activity) figures() figures { return figures{a.busy, a.any, a.several} }

// Spans arrive in any order and overlap in any way, and the horizon advances at any time. If no span starts before the
// horizon, the figures equal the figures of the model up to the horizon.
func TestActivityAgreesWithAModelOnRandomSpans(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var a activity
			var all []stretch
			mark := time.Duration(0)
			for range 60 {
				if random.IntN(3) > 0 {
					start := mark + time.Duration(random.IntN(30))
					s := stretch{Engine(random.IntN(int(NumEngines))), Span{start, start + time.Duration(random.IntN(20))}}
					all = append(all, s)
					a.add(s.engine, s.span)
					continue
				}
				mark += time.Duration(random.IntN(25))
				a.advance(mark)
				if got, want := a.figures(), countTicks(all, 0, mark); got != want {
					t.Fatalf("up to %d: %+v, the model says %+v", mark, got, want)
				}
				a.advance(mark - time.Duration(random.IntN(5))) // a horizon that goes backwards changes nothing
			}
			a.advance(mark + 1000)
			if got, want := a.figures(), countTicks(all, 0, mark+1000); got != want {
				t.Errorf("at the end: %+v, the model says %+v", got, want)
			}
			if len(a.open) != 0 {
				t.Errorf("%d spans are kept after the last span", len(a.open))
			}
		})
	}
}

// A span that starts before the horizon is counted only from the horizon on. So no time is counted twice.
func TestActivityCountsNothingTwice(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var a activity
		for at := time.Duration(0); at < 2000; at += time.Duration(random.IntN(20)) {
			start := max(0, at-time.Duration(random.IntN(200)))
			a.add(Engine(random.IntN(int(NumEngines))), Span{start, start + time.Duration(random.IntN(100))})
			a.advance(at)
			f := a.figures()
			if f.several > f.any || f.any > at {
				t.Fatalf("seed %d: overlap %d, busy %d, in %d of time", seed, f.several, f.any, at)
			}
			for e, busy := range f.busy {
				if busy > f.any {
					t.Fatalf("seed %d: engine %d was busy for %d, any for %d", seed, e, busy, f.any)
				}
			}
		}
	}
}
