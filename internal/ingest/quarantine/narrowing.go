package quarantine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Narrowing finds the records of a frame that lose the device, although each of them ends the process. It is kept where the next
// process reads it, together with the frame's sequence, and is changed before records run and after they have run. What a process
// leaves behind are the records that ran, alone on a device that had just passed a probe, when it died.
//
// The zero Narrowing knows nothing about a frame.
type Narrowing struct {
	First, Records int   // the run of records; 0 records: none
	Deaths         int   // number of processes that died while exactly these records ran
	Condemned      []int // records that are given up
}

// Run is a run of a frame's records: [First, First+Records).
type Run struct{ First, Records int }

// mostCondemned is the number of records of a frame that are given up one by one. With more, the whole frame is given up.
const mostCondemned = 64

// Next returns the runs in which a frame with that many records is tried, in order. The run in which the last process died is
// divided in two. If it is a single record and was tried LoneRuns times, the record is condemned. Next reports false if too many
// records are condemned.
func (n *Narrowing) Next(records int) (runs []Run, ok bool) {
	n.Condemned = slices.DeleteFunc(n.Condemned, func(i int) bool { return i >= records }) // the framing was changed
	cuts := []int{0}
	if from, to := n.First, n.First+n.Records; n.Records > 0 && from >= 0 && to <= records {
		switch {
		case n.Records > 1:
			cuts = append(cuts, from, from+n.Records/2, to)
		case n.Deaths < LoneRuns:
			cuts = append(cuts, from, to)
		default:
			n.Condemned = append(n.Condemned, from)
			n.First, n.Records, n.Deaths = 0, 0, 0
		}
	}
	cuts = slices.Compact(append(cuts, records))
	for i := range len(cuts) - 1 {
		runs = append(runs, Run{cuts[i], cuts[i+1] - cuts[i]})
	}
	return runs, len(n.Condemned) <= mostCondemned
}

// Begin returns what must be kept while a run is on the device. n is what the last process kept, for each run.
func (n Narrowing) Begin(r Run) Narrowing {
	deaths := 1
	if n.First == r.First && n.Records == r.Records {
		deaths = n.Deaths + 1
	}
	return Narrowing{r.First, r.Records, deaths, n.Condemned}
}

// String returns the text form, for ParseNarrowing.
func (n Narrowing) String() string {
	text := fmt.Sprintf("%d %d %d", n.First, n.Records, n.Deaths)
	for _, i := range n.Condemned {
		text += " " + strconv.Itoa(i)
	}
	return text
}

// ParseNarrowing parses the result of String. It returns the zero Narrowing for any other text.
func ParseNarrowing(text string) Narrowing {
	var numbers []int
	for field := range strings.FieldsSeq(text) {
		i, err := strconv.Atoi(field)
		if err != nil || i < 0 {
			return Narrowing{}
		}
		numbers = append(numbers, i)
	}
	if len(numbers) < 3 || len(numbers) > 3+mostCondemned+1 {
		return Narrowing{}
	}
	return Narrowing{numbers[0], numbers[1], numbers[2], numbers[3:]}
}
