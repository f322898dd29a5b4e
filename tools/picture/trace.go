package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// engines are the drawn tracks, from top to bottom.
var engines = []string{"copy_in", "compute", "copy_out"}

// event is an event of a Chrome trace, with times in microseconds.
type event struct {
	Name, Cat, Ph string
	Pid           int
	Ts, Dur       float64
	Args          struct{ Name string }
}

type trace struct {
	TraceEvents []event
}

func parse(text []byte) (t trace, err error) {
	return t, json.Unmarshal(text, &t)
}

// bar is a batch on an engine, in microseconds from the panel's left edge.
type bar struct {
	engine     int
	batch      int
	start, end float64
}

// panel is the activity of a pipeline's engines during an interval.
type panel struct {
	title string
	bars  []bar
	pace  float64 // microseconds per batch, from the starts of copies in
}

// panel returns an interval of span microseconds from the middle of the pipeline whose name matches of. It begins with the
// start of a copy in.
func (t trace) panel(title string, of *regexp.Regexp, span float64) (panel, error) {
	pids := map[int]bool{}
	for _, e := range t.TraceEvents {
		if e.Ph == "M" && e.Name == "process_name" && of.MatchString(e.Args.Name) {
			pids[e.Pid] = true
		}
	}
	if len(pids) != 1 {
		return panel{}, fmt.Errorf("%d pipelines are called %q, want one", len(pids), of)
	}
	bars, err := t.bars(pids)
	if err != nil {
		return panel{}, err
	}
	first := slices.IndexFunc(bars[len(bars)/2:], func(b bar) bool { return b.engine == 0 })
	if first < 0 {
		return panel{}, fmt.Errorf("%q has no copy in behind its middle", of)
	}
	from := bars[len(bars)/2+first].start
	p := panel{title: title}
	var copies []float64
	for _, b := range bars {
		b.start, b.end = b.start-from, b.end-from
		if b.end <= 0 || b.start >= span {
			continue
		}
		if b.engine == 0 && b.start >= 0 {
			copies = append(copies, b.start)
		}
		p.bars = append(p.bars, b)
	}
	if len(copies) < 2 {
		return panel{}, fmt.Errorf("%q has %d batches in %v us: raise -for", of, len(copies), span)
	}
	p.pace = (copies[len(copies)-1] - copies[0]) / float64(len(copies)-1)
	return p, nil
}

// bars returns the bars of these pipelines, ordered by start.
func (t trace) bars(pids map[int]bool) (bars []bar, err error) {
	for _, e := range t.TraceEvents {
		engine, number := slices.Index(engines, e.Cat), strings.TrimPrefix(e.Name, "batch ")
		if e.Ph != "X" || !pids[e.Pid] || engine < 0 || number == e.Name {
			continue
		}
		batch, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("an event is called %q", e.Name)
		}
		bars = append(bars, bar{engine: engine, batch: batch, start: e.Ts, end: e.Ts + e.Dur})
	}
	if len(bars) == 0 {
		return nil, fmt.Errorf("no engine of it did anything: want a trace of worker bench or worker demo")
	}
	slices.SortFunc(bars, func(a, b bar) int {
		if a.start < b.start {
			return -1
		}
		return 1
	})
	return bars, nil
}

// stretch is an interval with a constant number of busy engines.
type stretch struct {
	start, end float64
	busy       int
}

// overlap returns the intervals between 0 and span in which two or more engines were busy.
func overlap(bars []bar, span float64) (list []stretch) {
	var edges []float64
	for _, b := range bars {
		edges = append(edges, max(b.start, 0), min(b.end, span))
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	for i := range len(edges) - 1 {
		s := stretch{start: edges[i], end: edges[i+1]}
		seen := [3]bool{}
		for _, b := range bars {
			if b.start < s.end && b.end > s.start && !seen[b.engine] {
				seen[b.engine] = true
				s.busy++
			}
		}
		if s.busy >= 2 {
			list = append(list, s)
		}
	}
	return list
}
