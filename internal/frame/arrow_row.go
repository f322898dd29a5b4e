package frame

import (
	"encoding/binary"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"
)

// This file copies rows of a column and its children. These constants are the types that arrow_schema.go doesn't list.
const (
	typeDecimal         arrowType = 7
	typeDate            arrowType = 8
	typeTime            arrowType = 9
	typeTimestamp       arrowType = 10
	typeInterval        arrowType = 11
	typeList            arrowType = 12
	typeFixedSizeBinary arrowType = 15
	typeMap             arrowType = 17
	typeDuration        arrowType = 18
	typeLargeList       arrowType = 21
)

// rowCopy copies rows of a record batch into a new one. It panics if the batch is invalid, or has a type that can't be copied:
// a union, a list view or run-end encoding.
type rowCopy struct {
	batch *arrowBatch
	rows  *arrowRows
	body  []byte
	limit int // maximum size of the buffers of the new batch

	node, buffer, variadic int // indices of the next node, buffer and variadic count in the batch

	out newBatch
}

// newBatch is a record batch that is being written.
type newBatch struct {
	nodes    []int64 // pairs of length and number of nulls
	buffers  []int64 // pairs of position and length
	variadic []int64
	data     []byte
}

// rowFault is the panic of a rowCopy that can't copy a row.
type rowFault string

func check(ok bool, what string) {
	if !ok {
		panic(rowFault(what))
	}
}

// rowSet is a list of ranges of rows, in the order in which they are copied.
type rowSet struct {
	ranges []rowRange
	rows   int // number of rows in all ranges
	end    int // largest end of a range
}

type rowRange struct{ from, to int }

// maxRows is the maximum number of rows of a column or a child. The product of maxRows and a width fits in an int.
const maxRows = math.MaxUint32

// add adds a range. If the range follows the last range directly, add joins the two.
func (r *rowSet) add(from, to int) {
	check(0 <= from && from <= to && to <= maxRows && r.rows <= maxRows, "a column has too many rows")
	if from == to {
		return
	}
	r.rows, r.end = r.rows+to-from, max(r.end, to)
	if last := len(r.ranges) - 1; last >= 0 && r.ranges[last].to == from {
		r.ranges[last].to = to
		return
	}
	r.ranges = append(r.ranges, rowRange{from, to})
}

// copyField copies rows of a field.
func (c *rowCopy) copyField(field *flatbuffers.Table, set *rowSet) {
	length, nulls, ok := c.batch.message.pair(batchNodes, c.node)
	c.node++
	check(ok && int64(set.end) <= length, "a column has too few rows")
	encoding, isDictionary := tableIn(field, fieldDictionary)
	typ := typeOf(field)
	if typ == typeNull && !isDictionary {
		c.out.nodes = append(c.out.nodes, int64(set.rows), int64(set.rows))
		return
	}
	c.out.nodes = append(c.out.nodes, int64(set.rows), c.copyValidity(set, nulls != 0))
	if isDictionary {
		c.copyFixed(indexWidth(&encoding), set)
	} else {
		c.copyValues(field, typ, set)
	}
}

// copyValues copies the buffers after the validity, and the children.
func (c *rowCopy) copyValues(field *flatbuffers.Table, typ arrowType, set *rowSet) {
	details, _ := tableIn(field, fieldType)
	switch typ {
	case typeBool:
		c.add(c.bits(c.next(), set))
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8:
		c.addRanges(c.copyOffsets(typ.isLarge(), set), 1)
	case typeList, typeMap, typeLargeList:
		c.copyChildren(field, 1, c.copyOffsets(typ == typeLargeList, set))
	case typeFixedSizeList:
		const listSize = 4
		n := int(details.GetInt32Slot(listSize, 0))
		check(n >= 0, "a list has a negative size")
		var elements rowSet
		for _, r := range set.ranges {
			elements.add(r.from*n, r.to*n)
		}
		c.copyChildren(field, 1, &elements)
	case typeStruct:
		c.copyChildren(field, -1, set)
	case typeBinaryView, typeUtf8View:
		c.copyViews(set)
	default:
		c.copyFixed(fixedWidth(typ, &details), set)
	}
}

// copyChildren copies rows of all children of a field. want is the number of children, or -1 for any.
func (c *rowCopy) copyChildren(field *flatbuffers.Table, want int, set *rowSet) {
	n := 0
	for child := range tablesIn(field, fieldChildren) {
		c.copyField(&child, set)
		n++
	}
	check(want < 0 || n == want, "a column has the wrong number of children")
}

// copyFixed copies values of width bytes.
func (c *rowCopy) copyFixed(width int, set *rowSet) {
	check(width > 0, "a column has a type whose rows can't be copied")
	c.addRanges(set, width)
}

// addRanges adds a buffer with the given rows of the batch's next buffer. Each row has width bytes.
func (c *rowCopy) addRanges(set *rowSet, width int) {
	values, start := c.next(), len(c.out.data)
	for _, r := range set.ranges {
		c.grow(slice(values, r.from*width, r.to*width))
	}
	c.end(start)
}

// copyValidity copies the bits that mark the nulls, and returns the number of nulls. If has is false, the batch has no such bits.
func (c *rowCopy) copyValidity(set *rowSet, has bool) (nulls int64) {
	if !has {
		c.buffer++
		c.add(nil)
		return 0
	}
	marks := c.bits(c.next(), set)
	for i := range set.rows {
		if isNull(marks, i) {
			nulls++
		}
	}
	if nulls == 0 {
		marks = nil
	}
	c.add(marks)
	return nulls
}

// bits returns the bits of the rows without gaps, beginning at the first bit.
func (c *rowCopy) bits(bitmap []byte, set *rowSet) []byte {
	check((set.end+7)/8 <= len(bitmap), "a bitmap is too short")
	c.reserve((set.rows + 7) / 8)
	out, at := make([]byte, (set.rows+7)/8), 0
	for _, r := range set.ranges {
		for i := r.from; i < r.to; i, at = i+1, at+1 {
			if !isNull(bitmap, i) {
				out[at/8] |= 1 << (at % 8)
			}
		}
	}
	return out
}

func slice(values []byte, from, to int) []byte {
	check(0 <= from && from <= to && to <= len(values), "a buffer is too short")
	return values[from:to]
}

// copyOffsets copies the offsets of rows, as if their elements had no gaps. It returns the elements.
func (c *rowCopy) copyOffsets(large bool, set *rowSet) *rowSet {
	width := 4
	if large {
		width = 8
	}
	offsets, elements := c.next(), &rowSet{}
	if set.rows == 0 {
		c.add(make([]byte, width))
		return elements
	}
	check(len(offsets)/width > set.end, "a buffer of offsets is too short")
	at := func(i int) int {
		if large {
			return int(binary.LittleEndian.Uint64(offsets[i*width:]) & math.MaxInt64)
		}
		return int(binary.LittleEndian.Uint32(offsets[i*width:]))
	}
	c.reserve((set.rows + 1) * width)
	out := make([]byte, width, (set.rows+1)*width)
	for _, r := range set.ranges {
		first, before := at(r.from), elements.rows
		for i := r.from; i < r.to; i++ {
			check(at(i) <= at(i+1), "the offsets of a column descend")
			end := before + at(i+1) - first
			if large {
				out = binary.LittleEndian.AppendUint64(out, uint64(end))
			} else {
				check(end <= math.MaxInt32, "a column of the selected rows is too large")
				out = binary.LittleEndian.AppendUint32(out, uint32(end))
			}
		}
		elements.add(first, at(r.to))
	}
	c.add(out)
	return elements
}

// copyViews copies views. It copies the data of long views into one buffer.
func (c *rowCopy) copyViews(set *rowSet) {
	const size, inline = 16, 12
	source, views := c.next(), []byte(nil)
	c.reserve(set.rows * size)
	for _, r := range set.ranges {
		views = append(views, slice(source, size*r.from, size*r.to)...)
	}
	counts, n := vectorIn(&c.batch.message.header, batchVariadicCounts, 8)
	check(c.variadic < n, "a number of data buffers is missing")
	count := c.batch.message.header.GetInt64(counts + flatbuffers.UOffsetT(8*c.variadic))
	check(0 <= count && count <= int64(len(c.body)), "a number of data buffers is wrong")
	c.variadic++
	first := c.buffer
	c.buffer += int(count)
	var data []byte
	for at := 0; at < len(views); at += size {
		length := binary.LittleEndian.Uint32(views[at:])
		if length <= inline {
			continue
		}
		index, offset := binary.LittleEndian.Uint32(views[at+8:]), int(binary.LittleEndian.Uint32(views[at+12:]))
		check(int64(index) < count, "a view is wrong")
		value := slice(c.at(first+int(index)), offset, offset+int(length))
		c.reserve(len(views) + len(data) + len(value))
		binary.LittleEndian.PutUint32(views[at+8:], 0)
		binary.LittleEndian.PutUint32(views[at+12:], uint32(len(data)))
		data = append(data, value...)
	}
	c.add(views)
	c.add(data)
	c.out.variadic = append(c.out.variadic, 1)
}

// reserve checks that n more bytes fit into the new batch.
func (c *rowCopy) reserve(n int) {
	check(n <= c.limit-len(c.out.data), "the rows are too large, perhaps because they share bytes")
}

// add adds a buffer to the new batch.
func (c *rowCopy) add(buffer []byte) {
	start := len(c.out.data)
	c.grow(buffer)
	c.end(start)
}

// grow appends bytes to the buffer that a later call of end adds.
func (c *rowCopy) grow(values []byte) {
	c.reserve(len(values))
	c.out.data = append(c.out.data, values...)
}

// end adds the buffer that begins at start in the new batch.
func (c *rowCopy) end(start int) {
	o := &c.out
	o.buffers = append(o.buffers, int64(start), int64(len(o.data)-start))
	for len(o.data)%8 != 0 {
		o.data = append(o.data, 0)
	}
}

// next returns the next buffer of the batch, decompressed.
func (c *rowCopy) next() []byte {
	c.buffer++
	return c.at(c.buffer - 1)
}

// indexWidth returns the number of bytes of an index into a dictionary.
func indexWidth(encoding *flatbuffers.Table) int {
	const indexType, bitWidth = 6, 4
	if integer, ok := tableIn(encoding, indexType); ok {
		return int(integer.GetInt32Slot(bitWidth, 0)) / 8
	}
	return 4
}

// fixedWidth returns the number of bytes of a value, or 0 if values of the type don't have a fixed width. The slots are those of
// the tables in Arrow's Schema.fbs.
func fixedWidth(typ arrowType, details *flatbuffers.Table) int {
	const first, second, third = 4, 6, 8
	if details.Bytes == nil {
		return 0
	}
	switch typ {
	case typeInt:
		return int(details.GetInt32Slot(first, 0)) / 8
	case typeFloatingPoint:
		return 2 << (details.GetInt16Slot(first, 0) & 3)
	case typeDecimal:
		return int(details.GetInt32Slot(third, 128)) / 8
	case typeDate:
		return 4 << (details.GetInt16Slot(first, 1) & 1)
	case typeTime:
		return int(details.GetInt32Slot(second, 32)) / 8
	case typeTimestamp, typeDuration:
		return 8
	case typeInterval:
		return 4 << (details.GetInt16Slot(first, 0) & 3)
	case typeFixedSizeBinary:
		return int(details.GetInt32Slot(first, 0))
	}
	return 0
}
