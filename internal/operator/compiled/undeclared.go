package compiled

import (
	"strconv"
	"strings"
)

// The code of an operator writes its own statuses and lengths, on a GPU without a check. So nothing may rely on them: a record with a
// status that isn't declared, or with a byte string that is longer than its slot, has no result.

// undeclared begins the reason of a record whose result its operator doesn't declare. A reason has at most 64 characters, and a name 32.
const undeclared = "undeclared result: "

// outOfBounds is the reason of a record with statusOutOfBounds.
const outOfBounds = "the operator accessed a byte outside the record or its result"

// batchOutOfBounds is the reason of a batch whose records have statusBatchOutOfBounds.
const batchOutOfBounds = "a pass of the operator accessed something outside its bounds"

// FailedBatch returns why no record of a batch with that many rows has a result, or "" if the operator didn't fail on the batch as a
// whole. Nobody knows which of the records the cause is in.
func (o *Operator) FailedBatch(result []byte, rows int) string {
	if rows > 0 && o.Status(result, rows, 0) == statusBatchOutOfBounds {
		return batchOutOfBounds
	}
	return ""
}

// Refusal returns why the operator has no result for a record with that status, or "" if it has one.
func (o *Operator) Refusal(status byte) string {
	if status == 0 {
		return ""
	}
	if reason, ok := o.Reason(status); ok {
		return reason
	}
	return undeclared + "status " + strconv.Itoa(int(status))
}

// Overlong returns why record i has no result: the length of one of its byte strings exceeds the slot. It returns "" if all fit.
func (o *Operator) Overlong(offsets []uint32, result []byte, i int) string {
	for k, f := range o.description.Fields {
		if f.Type == Bytes && o.stringBytes(result, k, i) > f.slot(offsets, i) {
			return undeclared + f.Name + " is too long"
		}
	}
	return ""
}

// slot returns the size of the slot that a byte string of record i has.
func (f Field) slot(offsets []uint32, i int) int {
	return f.MostBytes + f.MostPerByte*int(offsets[i+1]-offsets[i])
}

// IsUndeclared reports whether a reason from Refusal or Overlong says that the operator returned a result that it doesn't declare.
func IsUndeclared(reason string) bool { return strings.HasPrefix(reason, undeclared) }

// IsOutOfBounds reports whether a reason from Refusal says that the operator accessed a byte outside the record or its result.
func IsOutOfBounds(reason string) bool { return reason == outOfBounds }
