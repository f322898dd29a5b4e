package devkit

import (
	"bytes"
	"fmt"
	"strconv"

	"millrace/internal/operator/compiled"
)

// Kind is the kind of a finding.
type Kind int

// These constants are the kinds of findings.
const (
	OutOfBounds   Kind = iota + 1 // the code accessed a byte outside a record or its result
	WroteOutside                  // the code wrote outside the memory of its result and scratch
	Undeclared                    // the code returned a status or a length that it doesn't declare
	LeftOver                      // a rejected record has a result
	WrongNeeds                    // the kernel's memory needs differ from its declaration
	Unrepeatable                  // two runs of a batch have different results
	Uninitialized                 // a result depends on the initial contents of memory
	ReadOutside                   // a result depends on bytes around the batch
	Placement                     // a result depends on the batch's position in memory
	Neighbors                     // a result depends on the other records of the batch
	Devices                       // two devices have different results
	Lost                          // the device failed
	Endless                       // a batch didn't finish
	Crashed                       // the code ended its process
	Unexpected                    // the result of a sample differs from its author's expectation
)

// Finding is a fault of an operator, with its batch and its record. It implements error.
type Finding struct {
	Kind   Kind
	Batch  string
	Record int    // index of the record in the batch; -1 if the finding is about the whole batch
	Data   []byte // bytes of the record
	Text   string
}

// String describes the finding in one line.
func (f Finding) String() string {
	if f.Record < 0 {
		return fmt.Sprintf("batch %q: %s", f.Batch, f.Text)
	}
	const limit = 16
	data, more := f.Data, ""
	if len(data) > limit {
		data, more = data[:limit], "..."
	}
	return fmt.Sprintf("batch %q, record %d (%d bytes, %s%s): %s", f.Batch, f.Record, len(f.Data), strconv.Quote(string(data)), more, f.Text)
}

// Error implements error.
func (f *Finding) Error() string { return f.String() }

// finding returns a finding about a whole batch.
func finding(kind Kind, format string, args ...any) *Finding {
	return &Finding{Kind: kind, Record: -1, Text: fmt.Sprintf(format, args...)}
}

// isFatal reports whether the device can't compute anything after the finding.
func (f *Finding) isFatal() bool { return f.Kind == Lost || f.Kind == Endless }

// Report is the outcome of a test.
type Report struct {
	Records  int       // number of computed records
	Done     int       // number of these records with a result
	Findings []Finding // at most one per batch and kind, except Unexpected
	Untested []string  // tests that were omitted, with the reasons
	Stopped  bool      // whether the device failed or didn't finish a batch, so that later tests were omitted
}

// Statuses of a record.
const (
	done             = 0
	batchOutOfBounds = 253
	outOfBounds      = 254
)

// Answer is the result of one record.
type Answer struct {
	Status   byte
	operator *compiled.Operator
	value    []byte // record and byte strings
}

// equal reports whether two answers have the same status and the same bytes.
func (a Answer) equal(b Answer) bool { return a.Status == b.Status && bytes.Equal(a.value, b.value) }

// isBlank reports whether the record is all zeros, without byte strings.
func (a Answer) isBlank() bool {
	for _, b := range a.value {
		if b != 0 {
			return false
		}
	}
	return len(a.value) == a.operator.Stride()
}

func (a Answer) reason() string {
	reason, _ := a.operator.Reason(a.Status)
	return reason
}

// String returns the JSON value, or "rejected: " and the reason if there is no value.
func (a Answer) String() string {
	if a.Status != done {
		return "rejected: " + a.reason()
	}
	return string(a.operator.AppendJSON(nil, a.value))
}

// maxText is the maximum number of bytes of an answer in a message.
const maxText = 120

// unlike describes the difference between two answers. first and second name the sources of the answers.
func unlike(a, b Answer, first, second string) string {
	x, y := a.String(), b.String()
	if x == y { // several floating-point numbers are null in JSON
		at := difference(a.value, b.value[:min(len(a.value), len(b.value))])
		return fmt.Sprintf("%s and %s give %s, but byte %d differs", first, second, shorten(x, 0), at)
	}
	at := 0
	for at < min(len(x), len(y)) && x[at] == y[at] {
		at++
	}
	return fmt.Sprintf("%s gives %s, and %s gives %s", first, shorten(x, at), second, shorten(y, at))
}

// shorten cuts a text to maxText bytes around a position.
func shorten(text string, at int) string {
	if len(text) <= maxText {
		return text
	}
	from := max(min(at-maxText/2, len(text)-maxText), 0)
	cut := text[from : from+maxText]
	if from > 0 {
		cut = "..." + cut
	}
	if from+maxText < len(text) {
		cut += "..."
	}
	return cut
}
