// Package table holds the results of one message's records, and encodes them as the body of a result message.
//
// The consumer of frames fills a Table while batches complete, possibly from several goroutines. One goroutine encodes it when every
// record has ended. The demo and tests compare a body with the reference implementations with Check. Start reading with Table, then
// encode.go and parts.go. docs/results.md specifies the formats.
package table

import (
	"fmt"
	"slices"

	"millrace/internal/arrowipc"
	"millrace/internal/invariants"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// Table has a row for each record of a message: its length in bytes, its status, and its result of each operator. The results of an
// operator are back to back, as a device leaves them. The zero Table has no records; call Reset before anything else.
//
// SetLength, SetStatus, Refuse, Put and PutStrings may be called concurrently for different records. All other calls need the table for themselves.
type Table struct {
	ops      []operator.Operator
	lengths  []uint64
	statuses []record.Status
	columns  [][]byte // columns[i] has Stride bytes per record of ops[i]
	strings  byteStrings
	refusals refusals

	arrow   *arrowipc.Encoder // made by the first Append for Arrow with these operators
	scratch []byte            // uncompressed body in Parts
	results [][]byte          // one record's values, for JSON
	value   []byte            // memory of the values with byte strings
}

// Reset prepares the table for a message of that many records. It reuses memory. All lengths are 0 and all statuses OK. Results have
// any value until Put sets them, so every record whose status stays OK needs a Put for each operator.
func (t *Table) Reset(ops []operator.Operator, records int) {
	if !slices.EqualFunc(t.ops, ops, sameSpec) {
		t.arrow = nil
	}
	t.ops = append(t.ops[:0], ops...)
	t.lengths = resized(t.lengths, records)
	clear(t.lengths)
	t.statuses = resized(t.statuses, records)
	clear(t.statuses)
	t.refusals.reset(ops, records)
	t.columns = resized(t.columns[:cap(t.columns)], len(ops)) // keeps the memory of columns beyond the operators of the last message
	for i, op := range ops {
		t.columns[i] = resized(t.columns[i], records*op.Stride())
	}
	t.strings.reset(ops, records)
	t.results = resized(t.results, len(ops))
}

// Poison overwrites the results that the table keeps memory for; see invariants.Poison.
func (t *Table) Poison() {
	for _, column := range t.columns[:cap(t.columns)] {
		invariants.Poison(column)
	}
	invariants.Poison(t.strings.bytes)
	invariants.Poison(t.scratch)
	invariants.Poison(t.value)
}

func sameSpec(a, b operator.Operator) bool { return a.String() == b.String() }

// resized returns a slice of n elements, in the memory of s if that suffices.
func resized[T any](s []T, n int) []T {
	if cap(s) >= n {
		return s[:n]
	}
	grown := make([]T, n)
	copy(grown, s)
	return grown
}

// Records returns the number of records.
func (t *Table) Records() int { return len(t.lengths) }

// SetLength sets the length of record i in bytes.
func (t *Table) SetLength(i, bytes int) { t.lengths[i] = uint64(bytes) }

// Status returns the status of record i.
func (t *Table) Status(i int) record.Status { return t.statuses[i] }

// Count returns the number of records with each status.
func (t *Table) Count() (records [record.Statuses]int) {
	for _, s := range t.statuses {
		records[s]++
	}
	return records
}

// SetStatus sets the status of record i. The results of a record that isn't OK don't appear in a body, and encoding overwrites them
// with zeros. SetStatus panics if the status is not valid.
func (t *Table) SetStatus(i int, s record.Status) {
	if !s.Valid() {
		panic(fmt.Sprintf("table: record %d gets the %v", i, s))
	}
	t.statuses[i] = s
}

// Put copies the results of the operator with index op for a run of records, the first of which has index first. results has Stride
// bytes per record. Put panics if it has any other length, or reaches beyond the last record.
func (t *Table) Put(op, first int, results []byte) {
	column, stride := t.columns[op], t.ops[op].Stride()
	if len(results)%stride != 0 || first < 0 || first*stride > len(column)-len(results) {
		panic(fmt.Sprintf("table: %d bytes for %v from record %d of %d on: a record has %d", len(results), t.ops[op], first, t.Records(), stride))
	}
	copy(column[first*stride:], results)
}

// result returns the record of the operator with index op for record i.
func (t *Table) result(op, i int) []byte {
	stride := t.ops[op].Stride()
	return t.columns[op][i*stride : (i+1)*stride]
}

// Size returns the bytes of memory that the table holds. A table keeps its memory for the next message.
func (t *Table) Size() int64 {
	size := int64(8*cap(t.lengths)+cap(t.statuses)+2*cap(t.refusals.causes)+cap(t.scratch)+cap(t.value)) + t.strings.size()
	for _, column := range t.columns[:cap(t.columns)] {
		size += int64(cap(column))
	}
	if t.arrow != nil {
		size += t.arrow.Size()
	}
	return size
}

// MostSize returns the maximum of Size of a table for messages of at most that many records, whose results have the format f and byte
// strings of that many bytes together. It doesn't include the uncompressed body that Parts holds if it has a compress function: add
// MostBytes for that.
func MostSize(f operator.Format, ops []operator.Operator, records, stringBytes int) int64 {
	size := int64(8+1) * int64(records)
	if canRefuse(ops) {
		size += 2 * int64(records)
	}
	for _, op := range ops {
		size += int64(op.Stride()) * int64(records)
	}
	if f == operator.Arrow {
		size += arrowipc.MostSize(operator.ArrowColumns(ops), records, stringBytes)
	}
	return size + mostStrings(ops, records, stringBytes)
}

// Reference returns the table that the records of a message must have, computed with the reference implementations. statuses says
// how each record must end; nil means that all are OK.
func Reference(ops []operator.Operator, records [][]byte, statuses []record.Status) *Table {
	t := new(Table)
	t.Reset(ops, len(records))
	var result []byte
	for i, payload := range records {
		t.SetLength(i, len(payload))
		if statuses != nil {
			t.SetStatus(i, statuses[i])
		}
		for k, op := range ops {
			result = op.AppendReference(result[:0], payload)
			t.putValue(k, i, result)
		}
	}
	return t
}

// Check compares body with the result message that Append returns for the records from up to, but not including, to. The error names
// the first byte that differs.
func (t *Table) Check(body []byte, f operator.Format, from, to int) error {
	if err := operator.Compare(body, t.Append(nil, f, from, to)); err != nil {
		return fmt.Errorf("the result of records %d to %d: %w", from, to-1, err)
	}
	return nil
}
