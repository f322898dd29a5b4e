package own

import (
	"millrace/internal/arrowipc"
	"millrace/internal/operator/compiled"
)

// arrowTypes are the types of elements in Arrow.
var arrowTypes = map[compiled.Type]arrowipc.Type{
	compiled.Uint8: arrowipc.Uint8Type, compiled.Uint16: arrowipc.Uint16Type,
	compiled.Uint32: arrowipc.Uint32Type, compiled.Uint64: arrowipc.Uint64Type,
	compiled.Int8: arrowipc.Int8Type, compiled.Int16: arrowipc.Int16Type,
	compiled.Int32: arrowipc.Int32Type, compiled.Int64: arrowipc.Int64Type,
	compiled.Float32: arrowipc.Float32Type, compiled.Float64: arrowipc.Float64Type,
	compiled.Bytes: arrowipc.BinaryType,
}

// ArrowColumn implements operator.Columnar: a struct with the declared fields, or the only field if it is bare.
func (o *Operator) ArrowColumn() arrowipc.Column { return arrowColumn(o.bound) }

func arrowColumn(o *compiled.Operator) arrowipc.Column {
	c := arrowipc.Column{Name: o.Name(), Spec: o.String(), Kind: arrowipc.Struct, Width: o.Stride()}
	for i, f := range o.Description().Fields {
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
