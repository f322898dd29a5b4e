package inflight

import (
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Refusals finds the rows of batches for which an operator has no result: it refused the record, or it left a result that it doesn't
// declare. Most lists of operators have none that can.
type Refusals struct{ refusers []refuser }

// refuser is an operator that can refuse a record.
type refuser struct {
	index   int // in the list of operators
	by      operator.Refuser
	faulty  operator.Faulty // the same operator, if a user's code writes its results; else nil
	strings bool            // its results have byte strings
}

// Refused is why an operator has no result for a row.
type Refused struct {
	Op     int    // index in the list of operators
	Reason string // "" if there is a result
	Fault  string // the operator's fault; "" if it refused the record for a declared reason
}

// NewRefusals returns the refusals of these operators.
func NewRefusals(operators []operator.Operator) (r Refusals) {
	for i, op := range operators {
		by, ok := op.(operator.Refuser)
		if !ok {
			continue
		}
		one := refuser{index: i, by: by}
		one.faulty, ok = op.(operator.Faulty)
		_, variable := op.(operator.Variable)
		one.strings = ok && variable
		r.refusers = append(r.refusers, one)
	}
	return r
}

// Possible reports whether one of the operators can refuse a record.
func (r Refusals) Possible() bool { return len(r.refusers) > 0 }

// Find returns which operator has no result for a row of a completed batch, and why. It returns the first if there are several. Byte
// strings may be read only of rows for which all operators have results.
func (r Refusals) Find(completed *streams.Batch, row int) Refused {
	for i := range r.refusers {
		o := &r.refusers[i]
		results := completed.Results(o.index)
		reason := o.by.Refusal(results, completed.Rows(), row)
		if reason == "" && o.strings {
			reason = o.faulty.Overlong(results, completed.Offsets(), row)
		}
		if reason == "" {
			continue
		}
		found := Refused{Op: o.index, Reason: reason}
		if o.faulty != nil {
			found.Fault = o.faulty.Fault(reason)
		}
		return found
	}
	return Refused{}
}
