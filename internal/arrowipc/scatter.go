package arrowipc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// addFields appends the records of a column of kind Single or Struct. The records that aren't OK are zeros without byte strings.
func (r *Rows) addFields(k int, c Column, column arrow.Array, n int) error {
	fields := []arrow.Array{column}
	if s, ok := column.(*array.Struct); ok && c.Kind == Struct {
		fields = fields[:0]
		for j := range c.Fields {
			fields = append(fields, s.Field(j))
		}
	}
	first := len(r.Values[k])
	r.Values[k] = append(r.Values[k], make([]byte, n*c.Width)...)
	strings := make([]*array.Binary, len(c.Fields))
	for j, f := range c.Fields {
		if c.Kind == Struct && fields[j].NullN() > 0 {
			return fmt.Errorf("%s: a value is null", f.Name)
		}
		if b, ok := fields[j].(*array.Binary); ok {
			strings[j] = b
			continue
		}
		values, err := f.values(fields[j], n)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		for i := range n {
			if column.IsValid(i) {
				copy(r.Values[k][first+i*c.Width+f.At:], values[i*f.bytes():(i+1)*f.bytes()])
			}
		}
	}
	if c.binaries() > 0 {
		r.addStrings(k, c, column, strings, n)
	}
	return nil
}

// addStrings appends the byte strings of a column, and puts their lengths into its records.
func (r *Rows) addStrings(k int, c Column, column arrow.Array, strings []*array.Binary, n int) {
	records := r.Values[k][len(r.Values[k])-n*c.Width:]
	for i := range n {
		from := len(r.Strings)
		for j, s := range strings {
			if s == nil {
				continue
			}
			if value := s.Value(i); column.IsValid(i) { // Value panics if positions descend, also those of a null
				r.Strings = append(r.Strings, value...)
				binary.LittleEndian.PutUint32(records[i*c.Width+c.Fields[j].At:], uint32(len(value)))
			}
		}
		r.Spans[k] = append(r.Spans[k], Span{from, len(r.Strings)})
	}
}

// values returns the memory of the values of n records, for a field that is a number or a list.
func (f Field) values(data arrow.Array, n int) ([]byte, error) {
	if data.Len() != n || data.Data().Offset() != 0 {
		return nil, errors.New("it has other records")
	}
	numbers := data
	if list, ok := data.(*array.FixedSizeList); ok {
		numbers = list.ListValues()
		if numbers.NullN() > 0 {
			return nil, errors.New("an entry is null")
		}
	}
	values := numbers.Data().Buffers()[1]
	if n == 0 {
		return nil, nil
	}
	if numbers.Data().Offset() != 0 || values == nil || values.Len() < n*f.bytes() {
		return nil, errors.New("its values are truncated")
	}
	return values.Bytes(), nil
}
