package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// engines are the tracks that are drawn, from above.
var engines = []string{"copy_in", "compute", "copy_out"}

// event is one of a Chrome trace, with times in microseconds.
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

// bar is a batch on an engine, in microseconds from the panel's left.
type bar struct {
	engine     int
	batch      int
	start, end float64
}

// panel is what a pipeline's engines did for a while.
type panel struct {
	title string
	bars  []bar
	pace  float64 // microseconds a batch, by the starts of copies in
}

// panel takes span microseconds out of the middle of the pipeline whose name of matches, from the start of a copy in on.
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

// bars are what the engines of these pipelines did, by start.
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

// stretch is a time in which as many engines were busy at once.
type stretch struct {
	start, end float64
	busy       int
}

// overlap says when two engines or more were busy, between 0 and span.
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
