package arrowipc

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Span is where the byte strings of a record are in memory, back to back in the order of the fields.
type Span struct{ From, To int }

// gathered is the memory for the values of one field.
type gathered struct {
	values []byte
	ends   []int32 // of byte strings; the first is 0
}

func (g *gathered) size() int64 { return int64(cap(g.values) + 4*cap(g.ends)) }

// gather collects the values of each field of column k that isn't the whole record.
func (e *Encoder) gather(k int, rows Rows) []gathered {
	c, n, fields := e.columns[k], len(rows.Lengths), e.gathered[k]
	records := rows.Values[k]
	for j, f := range c.Fields {
		if f.Type != BinaryType && !c.isWhole(f) {
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

// gatherStrings copies the byte strings of all records. The record has the length of each.
func gatherStrings(fields []gathered, c Column, rows Rows, k int) {
	n := len(rows.Lengths)
	for j, f := range c.Fields {
		if f.Type == BinaryType {
			g := &fields[j]
			g.values, g.ends = g.values[:0], append(grown(g.ends, n+1), 0)
		}
	}
	for i := range n {
		at := rows.Spans[k][i].From
		for j, f := range c.Fields {
			if f.Type != BinaryType {
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
