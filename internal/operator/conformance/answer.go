package conformance

import (
	"bytes"
	"fmt"

	"millrace/internal/operator/compiled"
)

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
	value    []byte // its record and byte strings
}

// equal reports whether two answers have the same status and the same bytes.
func (a Answer) equal(b Answer) bool { return a.Status == b.Status && bytes.Equal(a.value, b.value) }

// blank reports whether the record is all zeros, without byte strings.
func (a Answer) blank() bool {
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

// String returns the JSON value, or "rejected: " and the reason why there is none.
func (a Answer) String() string {
	if a.Status != done {
		return "rejected: " + a.reason()
	}
	return string(a.operator.AppendJSON(nil, a.value))
}

// mostText is the maximum number of bytes of an answer in a message.
const mostText = 120

// unlike describes two answers that differ, as what `first` and `second` give.
func unlike(a, b Answer, first, second string) string {
	x, y := a.String(), b.String()
	if x == y { // null stands for several floating-point numbers
		at := difference(a.value, b.value[:min(len(a.value), len(b.value))])
		return fmt.Sprintf("%s and %s give %s, but byte %d differs", first, second, shorten(x, 0), at)
	}
	at := 0
	for at < min(len(x), len(y)) && x[at] == y[at] {
		at++
	}
	return fmt.Sprintf("%s gives %s, and %s gives %s", first, shorten(x, at), second, shorten(y, at))
}

// shorten cuts a text to mostText bytes about a position.
func shorten(text string, at int) string {
	if len(text) <= mostText {
		return text
	}
	from := max(min(at-mostText/2, len(text)-mostText), 0)
	cut := text[from : from+mostText]
	if from > 0 {
		cut = "..." + cut
	}
	if from+mostText < len(text) {
		cut += "..."
	}
	return cut
}
