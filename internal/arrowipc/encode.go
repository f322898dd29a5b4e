package arrowipc

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"millrace/internal/record"
)

// Rows are the records of one stream.
type Rows struct {
	Lengths  []uint64        // length of each record in bytes
	Statuses []record.Status // as many as Lengths
	Values   [][]byte        // values of each column, back to back; must be zeros for records that aren't OK

	Strings []byte   // byte strings of all columns, in any order
	Spans   [][]Span // for each column, the ranges of its records in Strings; nil for columns without byte strings

	Field func(i, k int) []byte // the kept field k of record i, or nil; unused without kept fields
}

// Encoder writes streams with the same columns. It writes the schema's message once and copies it into every stream. It isn't safe
// for concurrent use.
type Encoder struct {
	columns []Column
	kept    []string // names of the kept fields
	schema  *arrow.Schema
	head    []byte // the schema's message, which starts every stream
	sink    sink   // output of writer
	writer  *ipc.Writer

	// These fields are memory that later calls reuse.
	offsets  []int32 // starts with 0; then the end of each status in texts
	texts    []byte
	validity []byte       // one bit per record
	gathered [][]gathered // fields of each column
	fields   keptFields
}

// endOfStream ends every stream.
const endOfStream = "\xff\xff\xff\xff\x00\x00\x00\x00"

// NewEncoder returns an encoder for columns and for kept fields with the given names. It panics if a column's kind and width
// contradict each other.
func NewEncoder(columns []Column, kept ...string) *Encoder {
	e := &Encoder{columns: slices.Clone(columns), kept: slices.Clone(kept), schema: newSchema(columns, kept)}
	for _, c := range columns {
		e.gathered = append(e.gathered, make([]gathered, len(c.Fields)))
	}
	e.writer = ipc.NewWriter(&e.sink, ipc.WithSchema(e.schema))
	// The writer first writes the schema and a batch, then only a batch. The schema's message is the difference.
	none := Rows{Values: make([][]byte, len(columns)), Spans: make([][]Span, len(columns))}
	e.fields.gather(kept, none)
	e.write(none)
	first := len(e.sink)
	e.write(none)
	second := len(e.sink) - first
	e.head = slices.Clone(e.sink[:first-second])
	e.sink = nil
	return e
}

// Columns returns the columns. The caller must not change them.
func (e *Encoder) Columns() []Column { return e.columns }

// Fields returns the names of the kept fields. The caller must not change them.
func (e *Encoder) Fields() []string { return e.kept }

// Append appends a stream of one batch with rows to dst and returns the extended slice. A stream without rows has no
// batch. The number of allocations doesn't depend on the number of rows. Append panics if the slices in rows don't have
// matching lengths, a status is invalid, or a column's byte strings have 2 GiB or more.
func (e *Encoder) Append(dst []byte, rows Rows) []byte {
	n, stringBytes := len(rows.Lengths), e.check(rows)
	fieldBytes := e.fields.gather(e.kept, rows)
	e.sink = append(slices.Grow(dst, MaxBytes(e.columns, n, stringBytes)+MaxFields(e.kept, n, fieldBytes)), e.head...)
	if len(rows.Lengths) > 0 {
		e.write(rows)
	}
	e.sink = append(e.sink, endOfStream...)
	dst, e.sink = e.sink, nil
	return dst
}

// Size returns the size in bytes of the memory that the encoder reuses.
func (e *Encoder) Size() int64 {
	size := int64(4*cap(e.offsets)+cap(e.texts)+cap(e.validity)+cap(e.head)) + e.fields.size()
	for _, fields := range e.gathered {
		for i := range fields {
			size += fields[i].size()
		}
	}
	return size
}

// MaxSize returns the maximum Size of an encoder whose streams have up to rows records and stringBytes bytes of byte strings. Memory for
// byte strings grows in steps, so it may exceed their length. Positions are in memory twice. Kept fields need MaxFields more bytes.
func MaxSize(columns []Column, rows, stringBytes int) int64 {
	limit := int64(4*(rows+1)+longestStatus*rows+(rows+7)/8) + int64(MaxBytes(columns, 0, 0))
	for _, c := range columns {
		limit += int64(c.maxGathered(rows)) + int64(c.binaries())*int64(3*stringBytes+64)
	}
	return limit
}

// check panics if rows doesn't match the columns. It returns the total length of the byte strings.
func (e *Encoder) check(rows Rows) (stringBytes int) {
	n := len(rows.Lengths)
	if len(rows.Statuses) != n || len(rows.Values) != len(e.columns) {
		panic(fmt.Sprintf("arrowipc: %d lengths, %d statuses, %d columns: want %d columns", n, len(rows.Statuses), len(rows.Values), len(e.columns)))
	}
	for i, s := range rows.Statuses {
		if !s.IsValid() {
			panic(fmt.Sprintf("arrowipc: record %d has the %v", i, s))
		}
	}
	for i, c := range e.columns {
		if len(rows.Values[i]) != n*c.Width {
			panic(fmt.Sprintf("arrowipc: column %q has %d bytes for %d records of %d", c.Name, len(rows.Values[i]), n, c.Width))
		}
		if c.binaries() > 0 {
			stringBytes += checkSpans(c, rows.spans(i), n)
		}
	}
	return stringBytes
}

// spans returns the spans of a column. Rows without records don't need spans.
func (r *Rows) spans(column int) []Span {
	if len(r.Lengths) == 0 {
		return nil
	}
	return r.Spans[column]
}

func checkSpans(c Column, spans []Span, n int) (bytes int) {
	if len(spans) != n {
		panic(fmt.Sprintf("arrowipc: column %q has byte strings of %d records, want %d", c.Name, len(spans), n))
	}
	for _, s := range spans {
		bytes += s.To - s.From
	}
	if bytes > maxStrings {
		panic(fmt.Sprintf("arrowipc: column %q has byte strings of %d bytes: a column takes %d", c.Name, bytes, maxStrings))
	}
	return bytes
}

// write writes one batch to the sink. A column that needs no rearrangement refers to the caller's memory, so its values are copied only
// once. The writer fails only if a batch contradicts the schema, because the sink never fails.
func (e *Encoder) write(rows Rows) {
	n := len(rows.Lengths)
	nulls := e.mark(rows.Statuses)
	valid := memory.NewBufferBytes(e.validity)
	columns := make([]arrow.Array, 0, fixedColumns+len(e.columns)+len(e.kept))
	columns = append(columns,
		newArray(arrow.PrimitiveTypes.Uint64, n, 0, nil, memory.NewBufferBytes(arrow.Uint64Traits.CastToBytes(rows.Lengths))),
		newArray(arrow.BinaryTypes.String, n, 0, nil,
			memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(e.offsets)), memory.NewBufferBytes(e.texts)))
	for i, c := range e.columns {
		if c.Fields != nil {
			columns = append(columns, e.fieldsArray(i, rows, nulls, valid))
			continue
		}
		t, values := e.schema.Field(fixedColumns+i).Type, memory.NewBufferBytes(rows.Values[i])
		columns = append(columns, newArray(t, n, nulls, valid, values))
	}
	columns = e.fields.appendArrays(columns, e.kept, n)
	batch := array.NewRecordBatch(e.schema, columns, int64(n))
	if err := e.writer.Write(batch); err != nil {
		panic(fmt.Sprintf("arrowipc: %v", err))
	}
}

func newArray(t arrow.DataType, n, nulls int, buffers ...*memory.Buffer) arrow.Array {
	return array.MakeFromData(array.NewData(t, n, buffers, nil, nulls, 0))
}

// mark sets offsets, texts and validity for the statuses and returns the number of records that aren't OK.
func (e *Encoder) mark(statuses []record.Status) (nulls int) {
	n := len(statuses)
	e.offsets = append(grown(e.offsets, n+1), 0)
	e.texts = grown(e.texts, longestStatus*n)
	e.validity = grown(e.validity, (n+7)/8)[:(n+7)/8]
	clear(e.validity)
	for i, s := range statuses {
		if s == record.OK {
			e.validity[i/8] |= 1 << (i % 8)
			e.texts = append(e.texts, "ok"...) // the same as s.String(), without a call per record
		} else {
			nulls++
			e.texts = append(e.texts, s.String()...)
		}
		e.offsets = append(e.offsets, int32(len(e.texts)))
	}
	return nulls
}

// grown returns an empty slice with capacity for n elements. It reuses the memory of s if that is large enough.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, 0, n)
	}
	return s[:0]
}

// sink is the memory that a writer appends to.
type sink []byte

// Write appends p. It never fails.
func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

// Span is the range of a record's byte strings in Rows.Strings. The byte strings lie back to back in the order of the fields.
type Span struct{ From, To int }

// gathered is the memory for the values of one field.
type gathered struct {
	values []byte
	ends   []int32 // starts with 0; then the end of each byte string

	positions positions // memory for values that are positions
}

func (g *gathered) size() int64 { return int64(cap(g.values)+4*cap(g.ends)) + g.positions.size() }

// gather collects the values of each field of column k that isn't the whole record.
func (e *Encoder) gather(k int, rows Rows) []gathered {
	c, n, fields := e.columns[k], len(rows.Lengths), e.gathered[k]
	records := rows.Values[k]
	for j, f := range c.Fields {
		if !f.isVariable() && !c.isWhole(f) {
			fields[j].copyValues(f, c.Width, n, records)
		}
	}
	if c.binaries() > 0 {
		gatherStrings(fields, c, rows, k)
	}
	return fields
}

// copyValues copies the values of a field that is a number or a list.
func (g *gathered) copyValues(f Field, width, n int, records []byte) {
	size := f.bytes()
	g.values = grown(g.values, n*size)
	for at := f.At; at < n*width; at += width {
		g.values = append(g.values, records[at:at+size]...)
	}
}

// gatherStrings copies the byte strings of all records. Each record contains the lengths of its byte strings.
func gatherStrings(fields []gathered, c Column, rows Rows, k int) {
	n := len(rows.Lengths)
	for j, f := range c.Fields {
		if f.isVariable() {
			g := &fields[j]
			g.values, g.ends = g.values[:0], append(grown(g.ends, n+1), 0)
		}
	}
	for i := range n {
		at := rows.Spans[k][i].From
		for j, f := range c.Fields {
			if !f.isVariable() {
				continue
			}
			g := &fields[j]
			end := at + int(binary.LittleEndian.Uint32(rows.Values[k][i*c.Width+f.At:]))
			g.values = append(g.values, rows.Strings[at:end]...)
			g.ends = append(g.ends, int32(len(g.values)))
			at = end
		}
	}
}

// data returns the Arrow data of a field's values.
func (g *gathered) data(f Field, t arrow.DataType, n, nulls int, valid *memory.Buffer) *array.Data {
	values := memory.NewBufferBytes(g.values)
	switch {
	case f.Type == PositionType:
		g.positions.set(g.values)
		return g.positions.data(memory.NewBufferBytes(g.positions.validity), g.positions.nulls)
	case f.Type == PositionsType:
		g.positions.set(g.values)
		for i := range g.ends {
			g.ends[i] /= positionBytes
		}
		ends := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(g.ends))
		return array.NewData(t, n, []*memory.Buffer{valid, ends}, []arrow.ArrayData{g.positions.data(nil, 0)}, nulls, 0)
	case f.Type == BinaryType:
		ends := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(g.ends))
		return array.NewData(t, n, []*memory.Buffer{valid, ends, values}, nil, nulls, 0)
	case f.Count > 0:
		elements := array.NewData(types[f.Type].arrow, n*f.Count, []*memory.Buffer{nil, values}, nil, 0, 0)
		return array.NewData(t, n, []*memory.Buffer{valid}, []arrow.ArrayData{elements}, nulls, 0)
	}
	return array.NewData(t, n, []*memory.Buffer{valid, values}, nil, nulls, 0)
}

// fieldsArray returns the array of a column of kind Single or Struct.
func (e *Encoder) fieldsArray(k int, rows Rows, nulls int, valid *memory.Buffer) arrow.Array {
	c, n, t := e.columns[k], len(rows.Lengths), e.schema.Field(fixedColumns+k).Type
	fields := e.gather(k, rows)
	whole := gathered{values: rows.Values[k]}
	if c.Kind == Single {
		values := &fields[0]
		if c.isWhole(c.Fields[0]) {
			values = &whole
		}
		return array.MakeFromData(values.data(c.Fields[0], t, n, nulls, valid))
	}
	children := make([]arrow.ArrayData, 0, len(fields))
	for j, f := range c.Fields {
		values := &fields[j]
		if c.isWhole(f) {
			values = &whole
		}
		children = append(children, values.data(f, t.(*arrow.StructType).Field(j).Type, n, 0, nil))
	}
	return array.MakeFromData(array.NewData(t, n, []*memory.Buffer{valid}, children, nulls, 0))
}
