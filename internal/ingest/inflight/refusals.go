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

// Of returns why an operator refused a row of a completed batch, or "" if none did. It names the first operator that did.
func (r Refusals) Of(completed *streams.Batch, row int) string {
	for _, o := range r.refusers {
		if reason := o.by.Refusal(completed.Results(o.index), completed.Rows(), row); reason != "" {
			return "operator " + o.by.Name() + ": " + reason
		}
	}
	return ""
}
