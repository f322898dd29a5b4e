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

// OperatorFault is a failure that an operator is to blame for.
type OperatorFault struct {
	Operator string    // name of the operator
	Fault    string    // one of operator.Faults
	At       time.Time // when a worker observed it
	Earlier  bool      // another process observed it, and left a note about it
}

// Faults returns all values of OperatorFault.Fault.
func Faults() []string { return operator.Faults() }

// FaultNote is the key of the note that a process leaves in the consumer's metadata when an operator has lost it its device. The
// process ends, and with it everything that it has counted.
const FaultNote = "millrace-operator-faults"

// mostNoted is the number of an operator's faults that a note keeps, and mostInNote that of all operators. An older fault is dropped
// for a newer one.
const (
	mostNoted  = 3
	mostInNote = 32
)

// AddFault returns a note with one more fault.
func AddFault(note string, f OperatorFault) string {
	var entries []string
	same := 0
	for _, other := range slices.Backward(append(ParseFaults(note), f)) {
		if other.Operator == f.Operator {
			if same++; same > mostNoted {
				continue
			}
		}
		if len(entries) < mostInNote {
			entries = append(entries, fmt.Sprintf("%s:%s:%d", other.Operator, other.Fault, other.At.UnixNano()))
		}
	}
	slices.Reverse(entries)
	return strings.Join(entries, " ")
}

// ParseFaults returns the faults of a note, the oldest first. It ignores what it can't read.
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

// FaultOf returns the fault with which an operator lost a pipeline its device. It reports false if the device isn't lost, or no operator
// is known to be to blame.
func FaultOf(pipe *streams.Pipeline) (f OperatorFault, ok bool) {
	name, fault := operator.FaultOfLoss(pipe.Err())
	return OperatorFault{Operator: name, Fault: fault, At: pipe.LostAt()}, name != ""
}
