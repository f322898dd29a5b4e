// Package table holds the results of one message's records and encodes them as the body of a result message.
//
// The worker fills a Table while batches complete, possibly from several goroutines. After the last batch, one
// goroutine encodes it. The demo and tests compare bodies with the reference implementations by calling Check. Start
// reading with Table, then encode.go and parts.go. docs/results.md specifies the formats.
package table

import (
	"fmt"
	"slices"

	"millrace/internal/arrowipc"
	"millrace/internal/invariants"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// Table has a row for each record of a message. A row holds the record's length in bytes, its status and its result of
// each operator. The results of an operator are back to back, as in a device's output. The zero Table has no records.
// Call Reset before any other method.
//
// SetLength, SetStatus, Refuse, Put and PutStrings may be called concurrently for different records. All other methods
// need exclusive access to the table.
type Table struct {
	ops      []operator.Operator
	lengths  []uint64
	statuses []record.Status
	columns  [][]byte // columns[i] has Stride bytes per record of ops[i]
	keys     [][]byte // results of the kernels of stateful operators; see keys.go
	strings  byteStrings
	refusals refusals
	fields   fields

	annotation annotation
	fault      error // error of Append; see appendRows

	isSelection bool
	numbers     []uint32 // if the table is a selection: the index of each record in the message
	selection   *Table   // memory of Select; may be nil

	arrow   *arrowipc.Encoder // created by the first Append for Arrow with these operators
	scratch []byte            // uncompressed body in Parts
	results [][]byte          // values of one record for JSON, or of several records for Arrow
	value   []byte            // memory of the values with byte strings
}

// Reset prepares the table for a message with the given number of records, and reuses memory. All lengths become 0, and all
// statuses become OK. Results are undefined until Put sets them, so every record whose status stays OK needs a Put for each
// operator, and a PutValue for each stateful operator.
func (t *Table) Reset(ops []operator.Operator, records int) {
	t.reset(ops, records)
	t.resetKeys()
}

// reset is like Reset, but doesn't prepare memory for keys.
func (t *Table) reset(ops []operator.Operator, records int) {
	if !slices.EqualFunc(t.ops, ops, sameSpec) {
		t.arrow = nil
	}
	t.isSelection, t.fault = false, nil
	t.ops = append(t.ops[:0], ops...)
	t.lengths = resized(t.lengths, records)
	clear(t.lengths)
	t.statuses = resized(t.statuses, records)
	clear(t.statuses)
	t.refusals.reset(ops, records)
	t.fields.reset()
	t.columns = resized(t.columns[:cap(t.columns)], len(ops)) // keeps the memory of columns that the last message didn't use
	for i, op := range ops {
		t.columns[i] = resized(t.columns[i], records*op.Stride())
	}
	t.strings.reset(ops, records)
	t.results = resized(t.results, len(ops))
}

// Poison overwrites all memory for results. See invariants.Poison.
func (t *Table) Poison() {
	for _, column := range slices.Concat(t.columns[:cap(t.columns)], t.keys[:cap(t.keys)]) {
		invariants.Poison(column)
	}
	invariants.Poison(t.strings.bytes)
	invariants.Poison(t.scratch)
	invariants.Poison(t.value)
}

func sameSpec(a, b operator.Operator) bool { return a.String() == b.String() }

// resized returns a slice of n elements. It reuses the memory of s if that memory is large enough.
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

// SetStatus sets the status of record i. Bodies omit the results of a record that isn't OK, and encoding overwrites
// these results with zeros. SetStatus panics if the status is not valid.
func (t *Table) SetStatus(i int, s record.Status) {
	if !s.IsValid() {
		panic(fmt.Sprintf("table: record %d gets the %v", i, s))
	}
	t.statuses[i] = s
}

// Put copies the results of the operator with index op for consecutive records, beginning with index first. results has Stride bytes per
// record. For a stateful operator, that is the Stride of its kernel. Put panics if results has a different length or extends past the last
// record.
func (t *Table) Put(op, first int, results []byte) {
	column, stride := t.columns[op], t.ops[op].Stride()
	if s, ok := t.ops[op].(operator.Stateful); ok {
		column, stride = t.keys[op], s.Kernel().Stride()
	}
	if len(results)%stride != 0 || first < 0 || first*stride > len(column)-len(results) {
		panic(fmt.Sprintf("table: %d bytes for %v from record %d of %d on: a record has %d", len(results), t.ops[op], first, t.Records(), stride))
	}
	copy(column[first*stride:], results)
}

// result returns the fixed-size result of the operator with index op for record i.
func (t *Table) result(op, i int) []byte {
	stride := t.ops[op].Stride()
	return t.columns[op][i*stride : (i+1)*stride]
}

// Size returns the size of the table's memory in bytes. The table keeps this memory for the next message.
func (t *Table) Size() int64 {
	size := int64(8*cap(t.lengths)+cap(t.statuses)+2*cap(t.refusals.causes)+4*cap(t.numbers)+cap(t.scratch)+cap(t.value)) + t.strings.size()
	for _, column := range t.columns[:cap(t.columns)] {
		size += int64(cap(column))
	}
	for _, keys := range t.keys[:cap(t.keys)] {
		size += int64(cap(keys))
	}
	if t.arrow != nil {
		size += t.arrow.Size()
	}
	if t.selection != nil {
		size += t.selection.Size()
	}
	return size
}

// MaxSize returns the maximum of Size for messages of at most the given number of records. The results have the format
// f and stringBytes bytes of byte strings in total. If Parts has a compress function, add MaxBytes for the
// uncompressed body. If operators are stateful, add MaxKeys, which a selection doesn't need.
func MaxSize(f operator.Format, ops []operator.Operator, records, stringBytes int) int64 {
	size := int64(8+1) * int64(records)
	if canRefuse(ops) {
		size += 2 * int64(records)
	}
	for _, op := range ops {
		size += int64(op.Stride()) * int64(records)
	}
	if f == operator.Arrow {
		size += arrowipc.MaxSize(operator.ArrowColumns(ops), records, stringBytes)
	}
	return size + maxStrings(ops, records, stringBytes)
}

// Reference returns the expected table for the records of a message, computed with the reference implementations. statuses holds
// the expected status of each record. If it is nil, all are OK. For a stateful operator, the table has keys but no values.
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
			result = operator.KernelOf(op).AppendReference(result[:0], payload)
			if t.keys[k] != nil {
				t.Put(k, i, result)
				continue
			}
			t.PutValue(k, i, result)
		}
	}
	return t
}

// Check compares body with the result of Append for the records [from, to). The error names the first byte that
// differs.
func (t *Table) Check(body []byte, f operator.Format, from, to int) error {
	if err := operator.Compare(body, t.Append(nil, f, from, to)); err != nil {
		return fmt.Errorf("the result of records %d to %d: %w", from, to-1, err)
	}
	return nil
}
