package compiled

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// This file reads the results that an operator's code writes for a batch: records, statuses and byte strings.
//
// The value of a record begins with Stride bytes, which contain the lengths of its byte strings. The byte strings follow back to back, in
// order of declaration.

// layoutAlign is the alignment of the parts of a result, in bytes.
const layoutAlign = 256

// Layout has the positions of the parts of a batch's result. The records come first. One status byte per record follows if HasStatuses
// returns true, and then the slots of the byte strings. Each part starts at a multiple of 256. A result with only records has no padding.
type Layout struct {
	Status  int // position of the statuses
	Strings int // position of the slots
	End     int // size of the whole result in bytes
}

// HasStatuses reports whether the results of the operator have a status per record. Host code (Library) that declares no reason has no
// statuses, because it computes every record.
func (o *Operator) HasStatuses() bool {
	return o.description.Form != Library || len(o.description.Reasons) > 0
}

// Status returns the status of a record in the result of a batch with the given number of rows. The status is 0 if the operator
// computed the record. Reason describes the other statuses.
func (o *Operator) Status(result []byte, rows, row int) byte {
	if !o.HasStatuses() {
		return 0
	}
	return result[o.Layout(rows, 0).Status+row]
}

// Layout returns the layout of a batch with the given number of records and their total number of bytes.
func (o *Operator) Layout(rows, bytes int) Layout {
	if records := rows * o.stride; !o.HasStatuses() && !o.HasStrings() {
		return Layout{Status: records, Strings: records, End: records}
	}
	var l Layout
	l.Status = alignUp(rows*o.stride, layoutAlign)
	l.Strings = l.Status
	if o.HasStatuses() {
		l.Strings = alignUp(l.Status+rows, layoutAlign)
	}
	l.End = l.Strings
	for _, f := range o.fields {
		l.End += f.MaxBytes*rows + f.MaxPerByte*bytes
	}
	return l
}

// AppendStrings appends the byte strings of record i, back to back. result is the result of a batch with the given offsets.
// AppendStrings omits a byte string whose length exceeds its slot.
func (o *Operator) AppendStrings(dst []byte, offsets []uint32, result []byte, i int) []byte {
	rows := len(offsets) - 1
	at := o.Layout(rows, int(offsets[rows])).Strings
	for k, f := range o.fields {
		if f.Type != Bytes {
			continue
		}
		slot := at + f.MaxBytes*i + f.MaxPerByte*int(offsets[i])
		if length := o.stringBytes(result, k, i); length <= f.slot(offsets, i) {
			dst = append(dst, result[slot:slot+length]...)
		}
		at += f.MaxBytes*rows + f.MaxPerByte*int(offsets[rows])
	}
	return dst
}

// AppendValue appends the value of record i: its record, and then its byte strings.
func (o *Operator) AppendValue(dst []byte, offsets []uint32, result []byte, i int) []byte {
	return o.AppendStrings(append(dst, result[i*o.stride:(i+1)*o.stride]...), offsets, result, i)
}

// Text returns the byte string in field i of Fields in a value, as a slice of the value. The field's type must be Bytes.
func (o *Operator) Text(i int, value []byte) []byte {
	strings := value[o.stride:]
	for k, f := range o.fields[:i] {
		if f.Type == Bytes {
			_, strings = cutString(value[o.places[k].at:], strings)
		}
	}
	text, _ := cutString(value[o.places[i].at:], strings)
	return text
}

// MaxStrings returns the maximum total length of a record's byte strings, which is limit + perByte times the length of the payload.
func (o *Operator) MaxStrings() (limit, perByte int) {
	for _, f := range o.fields {
		limit += f.MaxBytes
		perByte += f.MaxPerByte
	}
	return limit, perByte
}

// HasStrings reports whether the operator's results have byte strings.
func (o *Operator) HasStrings() bool {
	for _, f := range o.fields {
		if f.Type == Bytes {
			return true
		}
	}
	return false
}

// stringBytes returns the length of the byte string in field k of record i.
func (o *Operator) stringBytes(result []byte, k, i int) int {
	return int(binary.LittleEndian.Uint32(result[i*o.stride+o.places[k].at:]))
}

// Reason returns the text for the status byte of a record that the operator didn't compute. The text is a declared reason, or
// describes a fault of the code. ok is false for a status that the operator can't return.
func (o *Operator) Reason(status byte) (text string, ok bool) {
	switch reasons := o.description.Reasons; {
	case status == statusOutOfBounds:
		return outOfBounds, true
	case status == statusFailed:
		return "the operator failed on the record", true
	case status >= 1 && int(status) <= len(reasons):
		return reasons[status-1], true
	}
	return "", false
}

// These statuses exist in addition to 0, which means done, and to the numbers of declared reasons.
const (
	statusBatchOutOfBounds = 253
	statusOutOfBounds      = 254
	statusFailed           = 255
)

// An operator's code writes statuses and lengths, and a GPU doesn't check them, so callers must not rely on them. A record has no result
// if its status isn't declared, or if a byte string is longer than its slot.

// undeclared is the prefix of the reason for a result that the operator doesn't declare. A reason has at most 64 characters, and a name
// has at most 32.
const undeclared = "undeclared result: "

// outOfBounds is the reason of a record with statusOutOfBounds.
const outOfBounds = "the operator accessed a byte outside the record or its result"

// batchOutOfBounds is the reason of a batch whose records have statusBatchOutOfBounds.
const batchOutOfBounds = "a pass of the operator accessed something outside its bounds"

// FailedBatch returns the reason why no record of a batch has a result, or "" if the operator didn't fail on the batch as a whole. rows
// is the number of rows. The record that caused the failure isn't known.
func (o *Operator) FailedBatch(result []byte, rows int) string {
	if rows > 0 && o.Status(result, rows, 0) == statusBatchOutOfBounds {
		return batchOutOfBounds
	}
	return ""
}

// Refusal returns the reason why a record with the given status has no result, or "" if it has a result.
func (o *Operator) Refusal(status byte) string {
	if status == 0 {
		return ""
	}
	if reason, ok := o.Reason(status); ok {
		return reason
	}
	return undeclared + "status " + strconv.Itoa(int(status))
}

// Overlong returns a reason if one of record i's byte strings is longer than its slot, or else "". result is the result of a
// batch with the given offsets.
func (o *Operator) Overlong(offsets []uint32, result []byte, i int) string {
	for k, f := range o.fields {
		if f.Type == Bytes && o.stringBytes(result, k, i) > f.slot(offsets, i) {
			return undeclared + f.Name + " is too long"
		}
	}
	return ""
}

// slot returns the size of the slot for a byte string of record i in a batch with the given offsets.
func (f Field) slot(offsets []uint32, i int) int {
	return f.MaxBytes + f.MaxPerByte*int(offsets[i+1]-offsets[i])
}

// IsUndeclared reports whether a reason from Refusal or Overlong means that the operator returned a result that it doesn't declare.
func IsUndeclared(reason string) bool { return strings.HasPrefix(reason, undeclared) }

// IsOutOfBounds reports whether a reason from Refusal means that the operator accessed a byte outside the record or its result.
func IsOutOfBounds(reason string) bool { return reason == outOfBounds }

// Check checks the result that the operator's code wrote for a batch with the given offsets. Every status must be declared, or be the
// status of a batch that failed as a whole. No byte string may exceed its slot. Code that writes only through its result argument can't
// fail this check.
func (o *Operator) Check(offsets []uint32, result []byte) error {
	rows := len(offsets) - 1
	failed := o.FailedBatch(result, rows) != ""
	for i := range rows {
		status := o.Status(result, rows, i)
		reason := o.Overlong(offsets, result, i)
		if refusal := o.Refusal(status); IsUndeclared(refusal) {
			reason = refusal
		}
		switch {
		case failed && status != statusBatchOutOfBounds:
			return fmt.Errorf("operator %s: record 0 has status %d, and record %d has status %d: all records of a batch have status %d, or none",
				o.Name(), statusBatchOutOfBounds, i, status, statusBatchOutOfBounds)
		case !failed && reason != "":
			return fmt.Errorf("operator %s: record %d has an %s: it declares %s", o.Name(), i, reason, o.description.Declaration())
		}
	}
	return nil
}
