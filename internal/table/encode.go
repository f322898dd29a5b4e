package table

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"millrace/internal/arrowipc"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// This file writes versions 2 and 3 of the binary format. Numbers are unsigned and little-endian. Specs, statuses and
// values are padded with zeros to a multiple of 4 bytes. Version 3 is for selections: the number of each record, as
// uint32, follows the statuses.
const (
	binaryMagic         = "MILL"
	binaryVersion       = 2
	selectionVersion    = 3
	binaryHeaderBytes   = 16 // magic, uint16 version, uint16 operators, uint32 records, uint32 first record
	operatorHeaderBytes = 8  // uint32 spec bytes, uint32 stride; then the spec, padded
	binaryAlignment     = 4
)

// ContentType returns the Content-Type of results. A message is framed if it holds several records. A Table encodes the
// results of framed messages.
func ContentType(f operator.Format, framed bool) string {
	switch {
	case f.IsJSON() && framed:
		return "application/x-ndjson"
	case f.IsJSON():
		return "application/json"
	case f == operator.Binary:
		return "application/octet-stream"
	case f == operator.Arrow:
		return "application/vnd.apache.arrow.stream"
	}
	panic("table: no such format: " + f.String())
}

// Append appends the body of a result message with the records [from, to). Without records, an Arrow body has only the
// schema, and any other body is empty. The body depends only on the operators and on the rows of these records. For
// JSON and Binary, Append allocates only to grow dst. For Arrow, its allocations don't depend on the number of records.
func (t *Table) Append(dst []byte, f operator.Format, from, to int) []byte {
	if from < 0 || from > to || to > t.Records() {
		panic(fmt.Sprintf("table: records %d to %d of %d", from, to, t.Records()))
	}
	t.clearResults(from, to)
	if rows := t.rows(f); rows != nil {
		return t.appendRows(dst, rows, from, to)
	}
	switch f {
	case operator.JSON:
		return t.appendJSON(dst, from, to)
	case operator.Annotated:
		for i := from; i < to; i++ {
			dst = append(t.appendAnnotated(dst, i), '\n')
		}
		return dst
	case operator.Binary:
		return t.appendBinary(dst, from, to)
	case operator.Arrow:
		return t.appendArrow(dst, from, to)
	}
	panic("table: no such format: " + f.String())
}

// AppendSingle appends the body of the result of an unframed message, which is a single record. The result of a null record is
// the same as in a frame, but without the line break of JSON.
func (t *Table) AppendSingle(dst []byte, f operator.Format) []byte {
	switch {
	case f == operator.JSON:
		return t.appendLine(dst, 0)
	case f == operator.Annotated:
		return t.appendAnnotated(dst, 0)
	case f == operator.Arrow || t.statuses[0] != record.OK:
		return t.Append(dst, f, 0, 1)
	}
	t.collect(0)
	return f.Append(dst, t.ops, int(t.lengths[0]), t.results)
}

// MaxBytes returns the maximum number of bytes that Append appends for the given number of records. The byte strings of the records have
// stringBytes bytes in total. See operator.StringBytes. Kept fields need MaxFields more bytes, and Annotated also needs the length of the
// records.
func MaxBytes(f operator.Format, ops []operator.Operator, records, stringBytes int) int {
	switch f {
	case operator.JSON, operator.Annotated:
		strings := f.MaxBytes(ops, stringBytes) - f.MaxBytes(ops, 0)
		return records*(maxAnnotation+len(numberKey)+maxNumber+max(f.MaxBytes(ops, 0), maxError(ops))+len("\n")) + strings
	case operator.Binary:
		limit := binaryHeaderBytes + padded(records) + 4*records + stringBytes
		for _, op := range ops {
			limit += operatorHeaderBytes + padded(len(op.String())) + padded(records*op.Stride())
			if _, ok := op.(operator.Variable); ok {
				limit += 4*(records+1) + binaryAlignment
			}
		}
		return limit
	case operator.Arrow:
		return arrowipc.MaxBytes(append(operator.ArrowColumns(ops), numberColumn), records, stringBytes)
	}
	panic("table: no such format: " + f.String())
}

// clearResults sets the results of records that aren't OK to zeros.
func (t *Table) clearResults(from, to int) {
	for i := from; i < to; i++ {
		if t.statuses[i] != record.OK {
			for op := range t.ops {
				clear(t.result(op, i))
				t.strings.clear(op, i)
			}
		}
	}
}

// maxError returns the maximum length of a JSON result line that reports an error. A status's reason and message have
// at most 100 bytes together.
func maxError(ops []operator.Operator) int {
	const limit = len(`{"bytes":,"error":{"reason":"","message":""}}`) + maxNumber + 100
	if canRefuse(ops) {
		return limit + maxRefusal
	}
	return limit
}

// maxNumber is the maximum number of digits of a record's length.
const maxNumber = 20

func (t *Table) appendJSON(dst []byte, from, to int) []byte {
	for i := from; i < to; i++ {
		dst = append(t.appendLine(dst, i), '\n')
	}
	return dst
}

// numberKey precedes the number of a record.
const numberKey = `"record":`

// appendLine appends the object of record i. In a selection, it starts with the record's number.
func (t *Table) appendLine(dst []byte, i int) []byte {
	dst = append(dst, '{')
	if t.isSelection {
		dst = append(dst, numberKey...)
		dst = append(strconv.AppendUint(dst, uint64(t.numbers[i]), 10), ',')
	}
	dst = append(dst, `"bytes":`...)
	dst = strconv.AppendUint(dst, t.lengths[i], 10)
	dst = t.fields.appendJSON(dst, i)
	if t.statuses[i] != record.OK {
		return t.appendError(dst, i)
	}
	t.collect(i)
	return operator.AppendJSON(dst, t.ops, t.results)
}

// appendError appends the rest of the object of record i, which isn't OK.
func (t *Table) appendError(dst []byte, i int) []byte {
	dst = append(dst, `,"error":{"reason":"`...)
	dst = append(dst, t.statuses[i].String()...)
	dst = append(dst, `","message":"`...)
	dst = appendText(dst, t.Message(i))
	return append(dst, `"}}`...)
}

// appendBinary appends the body in the binary format. It appends nothing if there are no records.
func (t *Table) appendBinary(dst []byte, from, to int) []byte {
	if from == to {
		return dst
	}
	version := uint16(binaryVersion)
	if t.isSelection {
		version = selectionVersion
	}
	dst = append(dst, binaryMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(t.ops)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(to-from))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(t.Number(from)))
	for _, op := range t.ops {
		spec := op.String()
		length := uint32(op.Stride())
		if _, ok := op.(operator.Variable); ok {
			length |= operator.StringsFollow
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(spec)))
		dst = binary.LittleEndian.AppendUint32(dst, length)
		dst = append(dst, spec...)
		dst = appendPadding(dst, len(spec))
	}
	for _, s := range t.statuses[from:to] {
		dst = append(dst, byte(s))
	}
	dst = appendPadding(dst, to-from)
	if t.isSelection {
		dst = t.appendNumbers(dst, from, to)
	}
	for i, op := range t.ops {
		results := t.columns[i][from*op.Stride() : to*op.Stride()]
		dst = append(dst, results...)
		dst = appendPadding(dst, len(results))
		if spans := t.strings.spans[i]; spans != nil {
			dst = t.strings.appendBinary(dst, spans[from:to])
		}
	}
	return dst
}

// padded rounds n up to a multiple of binaryAlignment.
func padded(n int) int { return (n + binaryAlignment - 1) &^ (binaryAlignment - 1) }

func appendPadding(dst []byte, n int) []byte {
	return append(dst, "\x00\x00\x00"[:padded(n)-n]...)
}

// arrowColumns returns the columns of the operators. In a selection, the numbers of the records follow.
func (t *Table) arrowColumns() []arrowipc.Column {
	columns := operator.ArrowColumns(t.ops)
	if t.isSelection {
		columns = append(columns, numberColumn)
	}
	return columns
}

func (t *Table) appendArrow(dst []byte, from, to int) []byte {
	if t.arrow == nil || !slices.Equal(t.arrow.Fields(), t.fields.names) {
		t.arrow = arrowipc.NewEncoder(t.arrowColumns(), t.fields.names...)
	}
	for i, op := range t.ops {
		t.results[i] = t.columns[i][from*op.Stride() : to*op.Stride()]
	}
	values, spans := t.results, t.strings.slice(from, to)
	if t.isSelection {
		t.value = t.appendNumbers(t.value[:0], from, to)
		values, spans = append(values, t.value), append(spans, nil)
	}
	return t.arrow.Append(dst, arrowipc.Rows{
		Lengths: t.lengths[from:to], Statuses: t.statuses[from:to], Values: values, Strings: t.strings.bytes, Spans: spans,
		Field: func(i, k int) []byte { return t.fields.kept(from+i, k) },
	})
}
