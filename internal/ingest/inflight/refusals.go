package inflight

import (
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// Refusals finds the rows of batches that an operator refused. Most lists of operators have none that can.
type Refusals struct{ refusers []refuser }

// refuser is an operator that can refuse a record.
type refuser struct {
	index int // in the list of operators
	by    operator.Refuser
}

// NewRefusals returns the refusals of these operators.
func NewRefusals(operators []operator.Operator) (r Refusals) {
	for i, op := range operators {
		if by, ok := op.(operator.Refuser); ok {
			r.refusers = append(r.refusers, refuser{i, by})
		}
	}
	return r
}

// Possible reports whether one of the operators can refuse a record.
func (r Refusals) Possible() bool { return len(r.refusers) > 0 }

// Find returns the index of the first operator that refused a row of a completed batch, and why. The reason is "" if none did.
func (r Refusals) Find(completed *streams.Batch, row int) (op int, reason string) {
	for _, o := range r.refusers {
		if reason := o.by.Refusal(completed.Results(o.index), completed.Rows(), row); reason != "" {
			return o.index, reason
		}
	}
	return 0, ""
}
