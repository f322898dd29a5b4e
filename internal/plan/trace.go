package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/streams"
)

// traceEvent holds the fields of a Chrome trace event that a plan uses. Millrace writes each stage of each batch as a
// complete event (phase X) on its engine's track. The event's name is that of the batch, and its category is the stage.
type traceEvent struct {
	Name     string  `json:"name"`
	Category string  `json:"cat"`
	Phase    string  `json:"ph"`
	Process  int     `json:"pid"`
	Start    float64 `json:"ts"`  // microseconds
	Length   float64 `json:"dur"` // microseconds
	Args     struct {
		Name  string `json:"name"` // name of the process, in a process_name event
		Bytes int    `json:"bytes"`
		Lane  int    `json:"lane"`
		Err   string `json:"error"`
	} `json:"args"`
}

// maxMicros bounds the times in a trace, in microseconds: a year.
const maxMicros = 366 * 24 * 3600 * 1e6

// fromTrace extracts the stage times by batch size from a trace. It returns one workload for each process.
func fromTrace(text []byte) ([]Workload, error) {
	var events []traceEvent
	if err := json.Unmarshal(text, &events); err != nil {
		return nil, fmt.Errorf("the trace is damaged: %w: take a new one", err)
	}
	names := map[int]string{}
	stages := map[int]*[streams.NumEngines][]traceEvent{}
	var order []int
	for _, e := range events {
		if e.Name == "process_name" {
			names[e.Process] = e.Args.Name
		}
		engine := slices.IndexFunc(deviceStages[:], func(s streams.Stage) bool { return s.String() == e.Category })
		if e.Phase != "X" || engine < 0 || !strings.HasPrefix(e.Name, "batch ") || e.Args.Err != "" || e.Args.Bytes < 1 {
			continue
		}
		if !(e.Start >= 0 && e.Start <= maxMicros && e.Length >= 0 && e.Length <= maxMicros) || e.Args.Lane < 0 || e.Args.Lane >= MaxLanes {
			return nil, fmt.Errorf("the trace is damaged: %s %s cannot run at %v us for %v us on lane %d: take a new one",
				e.Name, e.Category, e.Start, e.Length, e.Args.Lane)
		}
		if stages[e.Process] == nil {
			stages[e.Process] = &[streams.NumEngines][]traceEvent{}
			order = append(order, e.Process)
		}
		stages[e.Process][engine] = append(stages[e.Process][engine], e)
	}
	var found []Workload
	for _, process := range order {
		w := Workload{Device: cmp.Or(names[process], fmt.Sprintf("process %d", process)), Kind: kindOf(names[process])}
		w.Rows = medians(stages[process], w.Kind)
		if slices.ContainsFunc(w.Rows, Row.timed) {
			found = append(found, w)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the trace has no batch with a copy in, a kernel and a copy out: take one of a worker that has work")
	}
	return found, nil
}

// kindOf returns the kind of a device from the device ID in the name. It returns an empty string if the name contains
// none.
func kindOf(name string) string {
	if strings.Contains(name, "GPU-") {
		return "cuda"
	}
	return ""
}

// lanesOf returns the number of lanes that the batches of a process used.
func lanesOf(stages *[streams.NumEngines][]traceEvent) int {
	lanes := map[int]bool{}
	for _, e := range stages[0] {
		lanes[e.Args.Lane] = true
	}
	return len(lanes)
}

// medians returns a row for each batch size, with the medians of its stages. If the previous kernel ended after this
// one started, this one's time counts from that end, because it waited for the multiprocessors until then.
func medians(stages *[streams.NumEngines][]traceEvent, kind string) []Row {
	bySize := map[int]*[streams.NumEngines][]float64{}
	for engine, events := range stages {
		slices.SortStableFunc(events, func(a, b traceEvent) int { return cmp.Compare(a.Start+a.Length, b.Start+b.Length) })
		free := 0.0
		for _, e := range events {
			end := e.Start + e.Length
			if bySize[e.Args.Bytes] == nil {
				bySize[e.Args.Bytes] = &[streams.NumEngines][]float64{}
			}
			times := &bySize[e.Args.Bytes][engine]
			*times = append(*times, (end-max(e.Start, free))/1e6)
			free = end
		}
	}
	var rows []Row
	lanes := lanesOf(stages)
	for size, times := range bySize {
		row := Row{Bytes: size, Schedule: scheduleFor(kind, size), Lanes: lanes, Samples: len(times[0])}
		for engine := range times {
			row.Stages[engine] = median(times[engine])
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return rows
}

// median returns the middle value, or the mean of the two middle values; 0 for no values.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
