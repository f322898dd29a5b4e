package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/internal/console"
)

// Kind is the kind of a finding.
type Kind string

// These are the kinds of findings.
const (
	Missing    Kind = "missing"    // neither a result nor a dead letter is stored, and none will be
	Double     Kind = "double"     // more than one outcome is stored, or one of its messages is stored twice
	Incomplete Kind = "incomplete" // a message of the outcome is missing
	Disorder   Kind = "disorder"   // a result is stored after the result of a later input of its partition
)

// Kinds lists all kinds of findings.
var Kinds = [...]Kind{Missing, Double, Incomplete, Disorder}

// Finding describes a problem of one input or of consecutive inputs.
type Finding struct {
	Kind  Kind   `json:"kind"`
	First uint64 `json:"first"` // sequence of the first input
	Last  uint64 `json:"last"`  // sequence of the last input; equals First for one input
	What  string `json:"what"`
}

// String returns the finding as a line.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s", f.Kind, inputsFrom(f.First, f.Last), f.What)
}

// Unknown counts inputs that have no stored outcome but may have had one.
type Unknown struct {
	Inputs uint64 `json:"inputs"`
	First  uint64 `json:"first"` // sequence of the first such input
	Last   uint64 `json:"last"`  // sequence of the last such input
	Reason string `json:"reason"`
}

// Report is the result of an audit. Each sequence from First to Last counts once: in one of the fields from Results to
// Unknown, or as Missing.
type Report struct {
	Stream string `json:"stream"`
	First  uint64 `json:"first"` // sequence of the first input; greater than Last if there is no input
	Last   uint64 `json:"last"`  // sequence of the last input

	Results     uint64 `json:"results"`      // inputs with one result
	DeadLetters uint64 `json:"dead_letters"` // inputs with one dead letter of the whole message
	Doubled     uint64 `json:"doubled"`      // inputs with several outcomes
	Pending     uint64 `json:"pending"`      // inputs that the deployment will still process
	Unread      uint64 `json:"unread"`       // messages with subjects that the deployment doesn't read

	Filtered uint64 `json:"filtered"` // records that a filter left out of results; a result may have none left

	Unknown  []Unknown       `json:"unknown,omitempty"`
	Counts   map[Kind]uint64 `json:"counts,omitempty"`   // number of affected inputs, or of surplus messages, by kind
	Findings []Finding       `json:"findings,omitempty"` // first findings of each kind, in the order of sequences
	Notes    []string        `json:"notes,omitempty"`    // descriptions of the skipped checks
	Took     time.Duration   `json:"took_ns"`

	limit int
}

// Inputs returns the number of sequences that were audited.
func (r *Report) Inputs() uint64 {
	if r.First > r.Last {
		return 0
	}
	return r.Last - r.First + 1
}

// Wrong returns the sum of Counts.
func (r *Report) Wrong() (n uint64) {
	for _, count := range r.Counts {
		n += count
	}
	return n
}

// add adds n to the count of f's kind. It appends f to Findings within the limit, or extends an adjacent finding.
func (r *Report) add(n uint64, f Finding) {
	if r.Counts == nil {
		r.Counts = map[Kind]uint64{}
	}
	r.Counts[f.Kind] += n
	named := 0
	for i := range r.Findings {
		if g := &r.Findings[i]; g.Kind == f.Kind {
			if named++; g.What == f.What && g.Last+1 == f.First {
				g.Last = f.Last
				return
			}
		}
	}
	if named < r.limit {
		r.Findings = append(r.Findings, f)
	}
}

// addUnknown counts the inputs from first to last as unknown for the given reason.
func (r *Report) addUnknown(first, last uint64, reason string) {
	i := slices.IndexFunc(r.Unknown, func(u Unknown) bool { return u.Reason == reason })
	if i < 0 {
		r.Unknown = append(r.Unknown, Unknown{First: first, Reason: reason})
		i = len(r.Unknown) - 1
	}
	u := &r.Unknown[i]
	u.Inputs, u.First, u.Last = u.Inputs+last-first+1, min(u.First, first), max(u.Last, last)
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// sort sorts the findings by sequence.
func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.First, b.First) })
}

// Print writes the report as text.
func (r *Report) Print(out io.Writer) error {
	var text bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	count := func(n uint64, what string) {
		if n > 0 {
			line("%14s %s", console.Count(int64(n)), what)
		}
	}
	if inputs := int64(r.Inputs()); inputs == 0 {
		line("%s: no inputs in this range", r.Stream)
	} else {
		line("%s, %s: %s in %s (%s/s)", r.Stream, inputsFrom(r.First, r.Last), console.Count(inputs), console.Time(r.Took),
			console.Count(int64(float64(inputs)/max(r.Took.Seconds(), 1e-9))))
	}
	count(r.Results, "have one result")
	count(r.DeadLetters, "have one dead letter")
	count(r.Pending, "are pending")
	count(r.Filtered, "records were left out of results by a filter")
	count(r.Unread, "have subjects that this deployment doesn't read")
	for _, u := range r.Unknown {
		count(u.Inputs, fmt.Sprintf("are unknown (%s): %s", inputsFrom(u.First, u.Last), u.Reason))
	}
	for _, note := range r.Notes {
		line("note: %s", note)
	}
	for _, f := range r.Findings {
		line("%s", f)
	}
	for _, k := range Kinds {
		if n := r.Counts[k]; n > 0 {
			line("%s: %s in all", k, console.Count(int64(n)))
		}
	}
	if r.Wrong() == 0 {
		line("nothing is missing, double, incomplete or out of order")
	}
	_, err := out.Write(text.Bytes())
	return err
}

// inputsFrom returns a text that names the inputs from first to last.
func inputsFrom(first, last uint64) string {
	if first == last {
		return fmt.Sprintf("input %d", first)
	}
	return fmt.Sprintf("inputs %d to %d", first, last)
}
