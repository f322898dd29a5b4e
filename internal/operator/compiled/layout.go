package compiled

import (
	"encoding/binary"
	"fmt"
)

// layoutAlign is the alignment of the parts of a result, in bytes.
const layoutAlign = 256

// Layout says where the parts of the result of a batch are: first the records, then one status byte per record if the operator
// HasStatuses, then the slots of the byte strings. Each part starts at a multiple of 256. A result of records alone ends with them.
type Layout struct {
	Status  int // position of the statuses
	Strings int // position of the slots
	End     int // bytes of the whole result
}

// HasStatuses reports whether the results of the operator have a status per record. Host code (Library) that declares no reason leaves
// none: it computes every record.
func (o *Operator) HasStatuses() bool {
	return o.description.Form != Library || len(o.description.Reasons) > 0
}

// Status returns the status of a record in the result of a batch with that many rows: 0 if the operator computed it. See Reason.
func (o *Operator) Status(result []byte, rows, row int) byte {
	if !o.HasStatuses() {
		return 0
	}
	return result[o.Layout(rows, 0).Status+row]
}

// Layout returns the layout of a batch with that many records, which have that many bytes in total.
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
	for _, f := range o.description.Fields {
		l.End += f.MostBytes*rows + f.MostPerByte*bytes
	}
	return l
}

// Check checks what the code of the operator left in result, which has the layout for these offsets: every status must be one that the
// operator declares, or that of a batch that failed as a whole, and no byte string may exceed its slot. Code that writes only through its
// result can't fail this check.
func (o *Operator) Check(offsets []uint32, result []byte) error {
	rows := len(offsets) - 1
	l := o.Layout(rows, int(offsets[rows]))
	statuses := result[l.Status:l.Status]
	if o.HasStatuses() {
		statuses = statuses[:rows]
	}
	if o.FailedBatch(result, rows) != "" {
		return o.checkFailed(statuses)
	}
	for i, status := range statuses {
		if _, ok := o.Reason(status); !ok && status != 0 {
			return fmt.Errorf("operator %s: record %d has status %d: it must be 0, 254, 255 or the number of one of %d reasons",
				o.description.Name, i, status, len(o.description.Reasons))
		}
	}
	for k, f := range o.description.Fields {
		if f.Type != Bytes {
			continue
		}
		for i := range rows {
			length := o.stringBytes(result, k, i)
			if most := f.MostBytes + f.MostPerByte*int(offsets[i+1]-offsets[i]); length > most {
				return fmt.Errorf("operator %s: record %d has %d bytes of %s: it may have %d", o.description.Name, i, length, f.Name, most)
			}
		}
	}
	return nil
}

// checkFailed checks the statuses of a batch that failed as a whole.
func (o *Operator) checkFailed(statuses []byte) error {
	for i, status := range statuses {
		if status != statusBatchOutOfBounds {
			return fmt.Errorf("operator %s: record 0 has status %d, and record %d has status %d: all records of a batch have status %d, or none",
				o.description.Name, statusBatchOutOfBounds, i, status, statusBatchOutOfBounds)
		}
	}
	return nil
}

// stringBytes returns the length of the byte string in field k of record i.
func (o *Operator) stringBytes(result []byte, k, i int) int {
	return int(binary.LittleEndian.Uint32(result[i*o.stride+o.fields[k].at:]))
}
