package arrow

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Texts has the values of an operator, or of one field of an operator, that are byte strings.
type Texts struct {
	Name  string // name of the operator
	Field string // name of the field; empty if the operator's values aren't structs
	Spec  string // the operator with all parameters; empty if the result doesn't tell

	bytes []byte
	ends  []int // of each record's in bytes
	valid []bool
}

// ByteStrings returns the byte strings of the operator with this name or this spec, or of the field with this name, such as "echo.text".
// It returns nil if there are none.
func (r *Result) ByteStrings(name string) *Texts {
	for i := range r.Texts {
		if c := &r.Texts[i]; c.Name == name || c.Spec == name || c.Field != "" && c.Name+"."+c.Field == name {
			return c
		}
	}
	return nil
}

// Value returns the byte string of record i, a slice of the result. It is nil if the record has none.
func (c *Texts) Value(i int) []byte {
	if !c.valid[i] {
		return nil
	}
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.bytes[start:c.ends[i]:c.ends[i]]
}

// addTexts adds a column if its values are byte strings.
func (r *Result) addTexts(c Column, t arrow.DataType) bool {
	if t.ID() != arrow.BINARY {
		return false
	}
	r.Texts = append(r.Texts, Texts{Name: c.Name, Field: c.Field, Spec: c.Spec})
	return true
}

// append appends the rows of a batch. data is the column, and values its values: itself, or those of a field.
func (c *Texts) append(data, values arrow.Array, rows int) error {
	texts, ok := values.(*array.Binary)
	if !ok || data.Len() != rows || values.Len() != rows {
		return fmt.Errorf("column %q has %d rows of %v, not %d", c.Name, data.Len(), values.DataType(), rows)
	}
	if rows == 0 {
		return nil
	}
	positions := texts.ValueOffsets()
	for i := range rows {
		if positions[i] > positions[i+1] {
			return fmt.Errorf("column %q: the positions of its byte strings descend", c.Name)
		}
	}
	for i := range rows {
		valid := data.IsValid(i) && values.IsValid(i)
		if valid {
			c.bytes = append(c.bytes, texts.Value(i)...)
		}
		c.ends, c.valid = append(c.ends, len(c.bytes)), append(c.valid, valid)
	}
	return nil
}
