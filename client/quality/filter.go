package quality

import (
	"fmt"
	"slices"
	"strings"
)

// Filter decides from a score whether to keep a text. The score is Numerator divided by Denominator.
type Filter struct {
	Name string // class of Curator with its parameters, or class and condition of datatrove

	Numerator   Sum
	Denominator Sum // 1 if nil

	// IsOneIfEmpty makes the score 1 if Denominator is 0. Otherwise, the filter raises an exception for a Denominator of 0.
	IsOneIfEmpty bool

	Requires Sum    // the filter raises an exception if this sum is 0; nil means no requirement
	OneIf    Sum    // the score is 1 if this sum isn't 0
	MinWords uint32 // the score is 1 if the text has fewer words
	Cap      uint32 // the greatest score, or 0 for no limit

	Min, Max float64 // limits of the score of a text to keep, both inclusive

	// Missing is the reason why the operator has no counters for this filter. It is empty if the filter has a score.
	Missing string
}

// NeedsNGrams reports whether the filter needs the counters that the operator has only with the parameter ngrams=true.
func (f *Filter) NeedsNGrams() bool {
	return slices.ContainsFunc(f.Numerator, func(t Term) bool { return t.Counter >= Duplicate5GramChars })
}

// Sum is a sum of counters.
type Sum []Term

// Term is a multiple of a counter, or of the number 1 if the counter is One.
type Term struct {
	Factor  int64
	Counter Counter
}

// One is the number 1 in a Term.
const One Counter = -1

// Value returns the sum for a record's counters. The value of a nil Sum is 0.
func (s Sum) Value(c Counters) (value int64) {
	for _, t := range s {
		if t.Counter == One {
			value += t.Factor
		} else {
			value += t.Factor * int64(c[t.Counter])
		}
	}
	return value
}

// String returns the sum as an expression, such as "chars - 2*paragraphs + 2".
func (s Sum) String() string {
	var b strings.Builder
	for i, t := range s {
		factor, sign := t.Factor, " + "
		if factor < 0 {
			factor, sign = -factor, " - "
		}
		if i > 0 {
			b.WriteString(sign)
		} else if t.Factor < 0 {
			b.WriteByte('-')
		}
		switch {
		case t.Counter == One:
			fmt.Fprint(&b, factor)
		case factor == 1:
			b.WriteString(t.Counter.String())
		default:
			fmt.Fprintf(&b, "%d*%v", factor, t.Counter)
		}
	}
	return b.String()
}

// Outcome is what a filter does with a text.
type Outcome uint8

const (
	Keep    Outcome = iota // the filter keeps the text
	Drop                   // the filter drops the text
	Raises                 // the original filter raises an exception, for example because it divides by zero
	Unknown                // there are no counters for the filter
)

// String returns the name of the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Keep:
		return "keep"
	case Drop:
		return "drop"
	case Raises:
		return "raises"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Score returns the filter's score. It is exactly the score that the original filter computes in Python. ok is false if the filter raises
// an exception, is missing, or needs counters that c doesn't have.
func (f *Filter) Score(c Counters) (score float64, ok bool) {
	switch {
	case !f.isKnown(c), f.Requires != nil && f.Requires.Value(c) == 0:
		return 0, false
	case f.OneIf.Value(c) != 0, c[Words] < f.MinWords:
		return 1, true
	}
	numerator, denominator := f.Numerator.Value(c), int64(1)
	if f.Denominator != nil {
		denominator = f.Denominator.Value(c)
	}
	if denominator == 0 {
		return 1, f.IsOneIfEmpty
	}
	if f.Cap > 0 {
		numerator = min(numerator, int64(f.Cap))
	}
	return float64(numerator) / float64(denominator), true // Python's division of integers below 2^53 gives the same number
}

// isKnown reports whether c has the counters for the filter.
func (f *Filter) isKnown(c Counters) bool {
	return f.Missing == "" && (c.HasNGrams() || !f.NeedsNGrams())
}

// Decide returns what the filter does with a text.
func (f *Filter) Decide(c Counters) Outcome {
	if !f.isKnown(c) {
		return Unknown
	}
	score, ok := f.Score(c)
	switch {
	case !ok:
		return Raises
	case score >= f.Min && score <= f.Max:
		return Keep
	}
	return Drop
}

// Decide applies filters in order. It returns Drop or Raises with the first filter that has this outcome, or else Keep and nil. It skips
// filters whose outcome is Unknown.
func Decide(filters []Filter, c Counters) (Outcome, *Filter) {
	for i := range filters {
		if o := filters[i].Decide(c); o == Drop || o == Raises {
			return o, &filters[i]
		}
	}
	return Keep, nil
}
