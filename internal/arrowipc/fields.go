package arrowipc

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// keptFields holds the memory for the columns of kept fields. In each slice, the columns follow each other.
type keptFields struct {
	values   []byte
	ends     []int32 // for each field: 0, then the end of each value
	validity []byte  // for each field: one bit per record, padded to whole bytes
	starts   []int   // position of each field in values
	nulls    []int   // number of nulls of each field
}

func (f *keptFields) size() int64 {
	return int64(cap(f.values) + 4*cap(f.ends) + cap(f.validity) + 8*(cap(f.starts)+cap(f.nulls)))
}

// gather collects the values of the kept fields, and returns their total length. It panics if the values of all fields have 2 GiB or more.
func (f *keptFields) gather(kept []string, rows Rows) (bytes int) {
	n := len(rows.Lengths)
	for k := range kept {
		for i := range n {
			bytes += len(rows.Field(i, k))
		}
	}
	if bytes > maxStrings {
		panic(fmt.Sprintf("arrowipc: kept fields of %d bytes: a stream takes %d", bytes, maxStrings))
	}
	marks := bitmap(n)
	f.values, f.ends = grown(f.values, bytes), grown(f.ends, len(kept)*(n+1))
	f.validity = grown(f.validity, len(kept)*marks)[:len(kept)*marks]
	f.starts, f.nulls = f.starts[:0], f.nulls[:0]
	clear(f.validity)
	for k := range kept {
		start, nulls, valid := len(f.values), 0, f.validity[k*marks:]
		f.ends = append(f.ends, 0)
		for i := range n {
			if value := rows.Field(i, k); value == nil {
				nulls++
			} else {
				valid[i/8] |= 1 << (i % 8)
				f.values = append(f.values, value...)
			}
			f.ends = append(f.ends, int32(len(f.values)-start))
		}
		f.starts, f.nulls = append(f.starts, start), append(f.nulls, nulls)
	}
	return bytes
}

// appendArrays appends an array of n records for each kept field.
func (f *keptFields) appendArrays(columns []arrow.Array, kept []string, n int) []arrow.Array {
	marks := bitmap(n)
	for k := range kept {
		ends := f.ends[k*(n+1):][:n+1]
		columns = append(columns, newArray(arrow.BinaryTypes.String, n, f.nulls[k],
			memory.NewBufferBytes(f.validity[k*marks:][:marks]),
			memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(ends)),
			memory.NewBufferBytes(f.values[f.starts[k]:][:ends[n]])))
	}
	return columns
}

// bitmap returns the number of bytes for n bits.
func bitmap(n int) int { return (n + 7) / 8 }

// MaxFields returns the maximum number of bytes that kept fields with the given names add to MaxBytes and to MaxSize. Their
// values have fieldBytes bytes in total.
func MaxFields(kept []string, rows, fieldBytes int) int {
	limit := fieldBytes
	for _, name := range kept {
		limit += maxField + len(keptPrefix) + len(name) + padded(bitmap(rows), 64) + padded(4*(rows+1), 8) + 8
	}
	return limit
}
