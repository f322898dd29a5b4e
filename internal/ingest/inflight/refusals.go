package inflight

import (
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Refusals finds rows for which an operator has no result. Either the operator refused the record, or it returned an
// undeclared status or an overlong byte string.
type Refusals struct{ refusers []refuser }

// refuser is an operator that can refuse a record.
type refuser struct {
	index   int // in the list of operators
	by      operator.Refuser
	faulty  operator.Faulty // the same operator if user code writes its results; otherwise nil
	strings bool            // whether user code writes byte strings into its results
}

// Refused describes an operator's missing result for a row.
type Refused struct {
	Op     int    // index in the list of operators
	Reason string // empty if there is a result
	Fault  string // the operator's fault; empty if the reason is declared
}

// NewRefusals returns the Refusals of the given operators.
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

// CanRefuse reports whether one of the operators can refuse a record.
func (r Refusals) CanRefuse() bool { return len(r.refusers) > 0 }

// Find returns the first operator that has no result for a row of a completed batch, and the reason. It returns the
// zero Refused if all operators have a result. Only then may the caller read byte strings of the row.
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
