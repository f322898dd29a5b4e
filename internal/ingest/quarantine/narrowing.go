package quarantine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Narrowing is the state of a search in a frame for records that break the device. It is stored with the frame's sequence before
// and after each run, so that the next process continues the search. If a process dies, the stored Narrowing names the records
// that were running alone. The device had just passed a probe.
//
// The zero Narrowing is the start of a search.
type Narrowing struct {
	First, Records int   // the run of records; Records is 0 if there is no run
	Deaths         int   // number of processes that died while exactly these records ran
	Condemned      []int // indices of the records that are given up
}

// Run is a run of a frame's records, from First to First+Records-1.
type Run struct{ First, Records int }

// maxCondemned is the maximum number of records of a frame that are given up one by one. With more, the whole frame is given up.
const maxCondemned = 64

// Next returns the runs in which a frame with the given number of records is tried, in order. It halves the run in which the last
// process died. If that run is a single record that was tried LoneRuns times, Next condemns the record. ok is false if too many
// records are condemned.
func (n *Narrowing) Next(records int) (runs []Run, ok bool) {
	n.Condemned = slices.DeleteFunc(n.Condemned, func(i int) bool { return i >= records }) // the framing may have changed
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
	return runs, len(n.Condemned) <= maxCondemned
}

// Begin returns the Narrowing to store while a run is on the device. n is the Narrowing from the last process.
func (n Narrowing) Begin(r Run) Narrowing {
	deaths := 1
	if n.First == r.First && n.Records == r.Records {
		deaths = n.Deaths + 1
	}
	return Narrowing{r.First, r.Records, deaths, n.Condemned}
}

// String returns the text form for ParseNarrowing.
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
	if len(numbers) < 3 || len(numbers) > 3+maxCondemned+1 {
		return Narrowing{}
	}
	return Narrowing{numbers[0], numbers[1], numbers[2], numbers[3:]}
}
