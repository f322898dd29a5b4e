package frame

import (
	"encoding/binary"
	"math"

	flatbuffers "github.com/google/flatbuffers/go"
)

// This file copies a range of rows of a column, with its children. Types that are not listed in arrow_schema.go:
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
	limit int // maximum size of the decompressed buffers of a batch

	node, buffer, variadic int // next ones in the batch

	out struct {
		nodes    []int64 // pairs of length and number of nulls
		buffers  []int64 // pairs of position and length
		variadic []int64
		data     []byte
	}
}

// rowFault is the panic of a rowCopy that can't copy a row.
type rowFault string

func check(ok bool, what string) {
	if !ok {
		panic(rowFault(what))
	}
}

// copyField copies the rows [from, to) of a field.
func (c *rowCopy) copyField(field *flatbuffers.Table, from, to int) {
	const size = 16
	nodes, n := vectorIn(&c.batch.message.header, batchNodes, size)
	check(c.node < n, "a field node is missing")
	node := nodes + flatbuffers.UOffsetT(size*c.node)
	length, nulls := c.batch.message.header.GetInt64(node), c.batch.message.header.GetInt64(node+8)
	c.node++
	check(0 <= from && from <= to && int64(to) <= length, "a column has too few rows")
	encoding, isDictionary := tableIn(field, fieldDictionary)
	typ := typeOf(field)
	if typ == typeNull && !isDictionary {
		c.out.nodes = append(c.out.nodes, int64(to-from), int64(to-from))
		return
	}
	c.out.nodes = append(c.out.nodes, int64(to-from), c.copyValidity(from, to, nulls != 0))
	if isDictionary {
		c.copyFixed(indexWidth(&encoding), from, to)
	} else {
		c.copyValues(field, typ, from, to)
	}
}

// copyValues copies the buffers after the validity, and the children.
func (c *rowCopy) copyValues(field *flatbuffers.Table, typ arrowType, from, to int) {
	details, _ := tableIn(field, fieldType)
	switch typ {
	case typeBool:
		c.add(bits(c.next(), from, to))
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8:
		first, last := c.copyOffsets(typ.isLarge(), from, to)
		c.add(slice(c.next(), first, last))
	case typeList, typeMap, typeLargeList:
		first, last := c.copyOffsets(typ == typeLargeList, from, to)
		c.copyChildren(field, 1, first, last)
	case typeFixedSizeList:
		const listSize = 4
		n := int(details.GetInt32Slot(listSize, 0))
		check(n >= 0, "a list has a negative size")
		c.copyChildren(field, 1, from*n, to*n)
	case typeStruct:
		c.copyChildren(field, -1, from, to)
	case typeBinaryView, typeUtf8View:
		c.copyViews(from, to)
	default:
		c.copyFixed(fixedWidth(typ, &details), from, to)
	}
}

// copyChildren copies the rows [from, to) of all children of a field. want is the number of children, or -1 for any.
func (c *rowCopy) copyChildren(field *flatbuffers.Table, want, from, to int) {
	first, n := vectorIn(field, fieldChildren, 4)
	check(want < 0 || n == want, "a column has the wrong number of children")
	for i := range n {
		child := elementIn(field, first, i)
		c.copyField(&child, from, to)
	}
}

// copyFixed copies values of width bytes.
func (c *rowCopy) copyFixed(width, from, to int) {
	check(width > 0, "a column has a type whose rows can't be copied")
	c.add(slice(c.next(), from*width, to*width))
}

// copyValidity copies the bits that mark the nulls, and returns the number of nulls. The bits have no meaning unless has is set.
func (c *rowCopy) copyValidity(from, to int, has bool) (nulls int64) {
	if !has {
		c.buffer++
		c.add(nil)
		return 0
	}
	marks := bits(c.next(), from, to)
	for i := range to - from {
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

// bits returns the bits [from, to) of a bitmap, beginning at the first bit.
func bits(bitmap []byte, from, to int) []byte {
	check((to+7)/8 <= len(bitmap), "a bitmap is too short")
	out := make([]byte, (to-from+7)/8)
	for i := from; i < to; i++ {
		if !isNull(bitmap, i) {
			out[(i-from)/8] |= 1 << ((i - from) % 8)
		}
	}
	return out
}

func slice(values []byte, from, to int) []byte {
	check(0 <= from && from <= to && to <= len(values), "a buffer is too short")
	return values[from:to]
}

// copyOffsets copies the offsets of the rows [from, to) relative to the first, and returns the first and the last offset.
func (c *rowCopy) copyOffsets(large bool, from, to int) (first, last int) {
	width := 4
	if large {
		width = 8
	}
	offsets := c.next()
	if from == to && len(offsets) == 0 {
		c.add(make([]byte, width))
		return 0, 0
	}
	offsets = slice(offsets, from*width, (to+1)*width)
	at := func(i int) int {
		if large {
			return int(binary.LittleEndian.Uint64(offsets[i*width:]) & math.MaxInt64)
		}
		return int(binary.LittleEndian.Uint32(offsets[i*width:]))
	}
	first, last = at(0), at(to-from)
	out := make([]byte, len(offsets))
	for i := range to - from + 1 {
		check(first <= at(i) && at(i) <= last, "the offsets of a column descend")
		if large {
			binary.LittleEndian.PutUint64(out[i*width:], uint64(at(i)-first))
		} else {
			binary.LittleEndian.PutUint32(out[i*width:], uint32(at(i)-first))
		}
	}
	c.add(out)
	return first, last
}

// copyViews copies views, and the data of long ones into one buffer.
func (c *rowCopy) copyViews(from, to int) {
	const size, inline = 16, 12
	views := append([]byte(nil), slice(c.next(), size*from, size*to)...)
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
		check(int64(index) < count && len(data)+int(length) <= c.limit, "a view is wrong")
		value := slice(c.at(first+int(index)), offset, offset+int(length))
		binary.LittleEndian.PutUint32(views[at+8:], 0)
		binary.LittleEndian.PutUint32(views[at+12:], uint32(len(data)))
		data = append(data, value...)
	}
	c.add(views)
	c.add(data)
	c.out.variadic = append(c.out.variadic, 1)
}

// add adds a buffer to the new batch.
func (c *rowCopy) add(buffer []byte) {
	o := &c.out
	check(len(o.data)+len(buffer) <= c.limit, "the row is too large")
	o.buffers = append(o.buffers, int64(len(o.data)), int64(len(buffer)))
	o.data = append(o.data, buffer...)
	for len(o.data)%8 != 0 {
		o.data = append(o.data, 0)
	}
}

// next returns the next buffer of the batch, decompressed.
func (c *rowCopy) next() []byte {
	c.buffer++
	return c.at(c.buffer - 1)
}

// indexWidth returns the bytes of an index into a dictionary.
func indexWidth(encoding *flatbuffers.Table) int {
	const indexType, bitWidth = 6, 4
	if integer, ok := tableIn(encoding, indexType); ok {
		return int(integer.GetInt32Slot(bitWidth, 0)) / 8
	}
	return 4
}

// fixedWidth returns the bytes of a value of a type, or 0 if values of the type don't have a fixed number of bytes. Its slots are
// those of the tables in Arrow's Schema.fbs.
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
