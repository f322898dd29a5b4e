package arrowipc

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// position is the Arrow type of a position of a record.
var position = arrow.StructOf(
	arrow.Field{Name: "sequence", Type: arrow.PrimitiveTypes.Uint64},
	arrow.Field{Name: "record", Type: arrow.PrimitiveTypes.Uint64},
)

// positionBytes is the size of a position in a record or in its byte strings.
const positionBytes = 16

// positions is the memory for the two columns of positions.
type positions struct {
	sequences, records []uint64
	validity           []byte // one bit per position
	nulls              int
}

func (p *positions) size() int64 { return int64(8*(cap(p.sequences)+cap(p.records)) + cap(p.validity)) }

// set separates the sequences and the numbers of positions. A position with sequence 0 is null.
func (p *positions) set(values []byte) {
	n := len(values) / positionBytes
	p.sequences, p.records, p.nulls = grown(p.sequences, n), grown(p.records, n), 0
	p.validity = grown(p.validity, bitmap(n))[:bitmap(n)]
	clear(p.validity)
	for i := range n {
		value := values[i*positionBytes:]
		sequence := binary.LittleEndian.Uint64(value)
		p.sequences, p.records = append(p.sequences, sequence), append(p.records, binary.LittleEndian.Uint64(value[8:]))
		if sequence == 0 {
			p.nulls++
		} else {
			p.validity[i/8] |= 1 << (i % 8)
		}
	}
}

// data returns the Arrow data of the positions. valid may be nil if no position is null.
func (p *positions) data(valid *memory.Buffer, nulls int) *array.Data {
	column := func(numbers []uint64) arrow.ArrayData {
		buffer := memory.NewBufferBytes(arrow.Uint64Traits.CastToBytes(numbers))
		return array.NewData(arrow.PrimitiveTypes.Uint64, len(numbers), []*memory.Buffer{nil, buffer}, nil, 0, 0)
	}
	return array.NewData(position, len(p.sequences), []*memory.Buffer{valid}, []arrow.ArrayData{column(p.sequences), column(p.records)}, nulls, 0)
}
