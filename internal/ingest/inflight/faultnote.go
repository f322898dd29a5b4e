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
