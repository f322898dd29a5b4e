package operator

import (
	"slices"
	"sync"

	"millrace/internal/arrowipc"
	"millrace/internal/operator/compiled"
	"millrace/internal/record"
)

// Columnar is implemented by operators that describe their column in an Arrow stream.
type Columnar interface {
	Operator

	// ArrowColumn returns the description of the column. Its Width is Stride.
	ArrowColumn() arrowipc.Column
}

// ArrowColumns returns the operators' columns in an Arrow stream. If an operator isn't Columnar, its column contains the
// records as bytes.
func ArrowColumns(ops []Operator) []arrowipc.Column {
	columns := make([]arrowipc.Column, 0, len(ops))
	for _, op := range ops {
		c := arrowipc.Column{Name: op.Name(), Spec: op.String(), Kind: arrowipc.Bytes, Width: op.Stride()}
		if op, ok := op.(Columnar); ok {
			c = op.ArrowColumn()
		}
		columns = append(columns, c)
	}
	return columns
}

// arrowTypes maps the types of elements to their types in Arrow.
var arrowTypes = map[compiled.Type]arrowipc.Type{
	compiled.Uint8: arrowipc.Uint8Type, compiled.Uint16: arrowipc.Uint16Type,
	compiled.Uint32: arrowipc.Uint32Type, compiled.Uint64: arrowipc.Uint64Type,
	compiled.Int8: arrowipc.Int8Type, compiled.Int16: arrowipc.Int16Type,
	compiled.Int32: arrowipc.Int32Type, compiled.Int64: arrowipc.Int64Type,
	compiled.Float32: arrowipc.Float32Type, compiled.Float64: arrowipc.Float64Type,
	compiled.Bytes: arrowipc.BinaryType,
}

// DeclaredColumn returns the Arrow column that an operator's declaration specifies: a struct with its fields, or the
// only field if that field is bare.
func DeclaredColumn(o *compiled.Operator) arrowipc.Column {
	c := arrowipc.Column{Name: o.Name(), Spec: o.String(), Kind: arrowipc.Struct, Width: o.Stride()}
	for i, f := range o.Fields() {
		at, count := o.Place(i)
		if !f.Array {
			count = 0
		}
		c.Fields = append(c.Fields, arrowipc.Field{Name: f.Name, Type: arrowTypes[f.Type], Count: count, At: at})
		if f.BareColumn {
			c.Kind = arrowipc.Single
		}
	}
	return c
}

// arrowEncoders is a pool of encoders, because a process writes many results of the same operators.
var arrowEncoders sync.Pool

// appendArrow appends an Arrow stream of one row to dst.
func appendArrow(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	columns := ArrowColumns(ops)
	e, _ := arrowEncoders.Get().(*arrowipc.Encoder)
	if e == nil || !slices.EqualFunc(e.Columns(), columns, arrowipc.Column.Equal) {
		e = arrowipc.NewEncoder(columns)
	}
	dst = e.Append(dst, singleRow(ops, payloadBytes, records))
	arrowEncoders.Put(e)
	return dst
}

// singleRow returns the values of one record as the only row of a stream.
func singleRow(ops []Operator, payloadBytes int, values [][]byte) arrowipc.Rows {
	rows := arrowipc.Rows{Lengths: []uint64{uint64(payloadBytes)}, Statuses: []record.Status{record.OK}, Values: values}
	for i, op := range ops {
		if _, ok := op.(Variable); !ok {
			continue
		}
		if rows.Spans == nil {
			rows.Values, rows.Spans = slices.Clone(values), make([][]arrowipc.Span, len(ops))
		}
		from := len(rows.Strings)
		rows.Strings = append(rows.Strings, values[i][op.Stride():]...)
		rows.Values[i], rows.Spans[i] = values[i][:op.Stride()], []arrowipc.Span{{From: from, To: len(rows.Strings)}}
	}
	return rows
}
