package inflight

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// OperatorFault is a failure that an operator caused.
type OperatorFault struct {
	Operator string    // name of the operator
	Fault    string    // one of operator.Faults
	At       time.Time // time when a worker observed the fault
	Earlier  bool      // whether another process observed and noted the fault
}

// Faults returns all values of OperatorFault.Fault.
func Faults() []string { return operator.Faults() }

// FaultNote is the metadata key of a consumer's note about operator faults. A process writes the note after an operator
// has caused the loss of its device, because the process ends and loses its counters.
const FaultNote = "millrace-operator-faults"

// maxNoted is the maximum number of faults of one operator in a note, and maxInNote the maximum for all operators.
// Newer faults replace older ones.
const (
	maxNoted  = 3
	maxInNote = 32
)

// AddFault returns note with f added.
func AddFault(note string, f OperatorFault) string {
	var entries []string
	same := 0
	for _, other := range slices.Backward(append(ParseFaults(note), f)) {
		if other.Operator == f.Operator {
			if same++; same > maxNoted {
				continue
			}
		}
		if len(entries) < maxInNote {
			entries = append(entries, fmt.Sprintf("%s:%s:%d", other.Operator, other.Fault, other.At.UnixNano()))
		}
	}
	slices.Reverse(entries)
	return strings.Join(entries, " ")
}

// ParseFaults returns the faults of a note, the oldest first. It ignores invalid entries.
func ParseFaults(note string) (faults []OperatorFault) {
	for _, entry := range strings.Fields(note) {
		parts := strings.Split(entry, ":")
		if len(parts) != 3 {
			continue
		}
		if at, err := strconv.ParseInt(parts[2], 10, 64); err == nil {
			faults = append(faults, OperatorFault{Operator: parts[0], Fault: parts[1], At: time.Unix(0, at), Earlier: true})
		}
	}
	return faults
}

// FaultOf returns the operator fault that caused the loss of a pipeline's device. ok is false if the device isn't lost,
// or if no operator is known to be the cause.
func FaultOf(pipe *streams.Pipeline) (f OperatorFault, ok bool) {
	name, fault := operator.FaultOfLoss(pipe.Err())
	return OperatorFault{Operator: name, Fault: fault, At: pipe.LostAt()}, name != ""
}
