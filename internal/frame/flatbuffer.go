package frame

import "encoding/binary"

// flatbuffer reads the metadata of an Arrow message, which is a FlatBuffer. A read outside of its bytes, or of a position
// that can't be right, sets broken and returns 0, so that the caller checks once after several reads. Positions count
// from the start of the metadata. Position 0 never holds a value.
type flatbuffer struct {
	bytes  []byte
	broken bool
}

// has reports whether n bytes can be read at pos. If not, the metadata is broken.
func (b *flatbuffer) has(pos, n int) bool {
	if pos < 0 || n < 0 || pos > len(b.bytes) || n > len(b.bytes)-pos {
		b.broken = true
		return false
	}
	return true
}

func (b *flatbuffer) uint8(pos int) uint8 {
	if !b.has(pos, 1) {
		return 0
	}
	return b.bytes[pos]
}

func (b *flatbuffer) uint16(pos int) uint16 {
	if !b.has(pos, 2) {
		return 0
	}
	return binary.LittleEndian.Uint16(b.bytes[pos:])
}

func (b *flatbuffer) uint32(pos int) uint32 {
	if !b.has(pos, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(b.bytes[pos:])
}

func (b *flatbuffer) int64(pos int) int64 {
	if !b.has(pos, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b.bytes[pos:]))
}

// follow returns the position to which the reference at pos points.
func (b *flatbuffer) follow(pos int) int {
	distance := int(b.uint32(pos))
	if distance == 0 || !b.has(pos, distance) {
		b.broken = true
		return 0
	}
	return pos + distance
}

// slot returns the position of a table's field, or 0 if the field has its default.
func (b *flatbuffer) slot(table, field int) int {
	vtable := table - int(int32(b.uint32(table)))
	size := int(b.uint16(vtable))
	at := 4 + 2*field
	if b.broken || at+2 > size {
		return 0
	}
	offset := int(b.uint16(vtable + at))
	if offset == 0 {
		return 0
	}
	return table + offset
}

// uint8Field returns a field of a table, or 0 if it has its default.
func (b *flatbuffer) uint8Field(table, field int) uint8 {
	if at := b.slot(table, field); at != 0 {
		return b.uint8(at)
	}
	return 0
}

// int16Field returns a field of a table, or 0 if it has its default.
func (b *flatbuffer) int16Field(table, field int) int16 {
	if at := b.slot(table, field); at != 0 {
		return int16(b.uint16(at))
	}
	return 0
}

// int64Field returns a field of a table, or 0 if it has its default.
func (b *flatbuffer) int64Field(table, field int) int64 {
	if at := b.slot(table, field); at != 0 {
		return b.int64(at)
	}
	return 0
}

// tableField returns the position of the table that a field refers to, or 0 if there is none.
func (b *flatbuffer) tableField(table, field int) int {
	if at := b.slot(table, field); at != 0 {
		return b.follow(at)
	}
	return 0
}

// vectorField returns the position of the first element of a vector and the number of its elements, which have size bytes
// each. All of them can be read.
func (b *flatbuffer) vectorField(table, field, size int) (first, n int) {
	vector := b.tableField(table, field)
	if vector == 0 {
		return 0, 0
	}
	n = int(b.uint32(vector))
	if b.broken || !b.has(vector+4, n*size) {
		return 0, 0
	}
	return vector + 4, n
}

// textField returns the bytes of a string, which is a vector of bytes.
func (b *flatbuffer) textField(table, field int) []byte {
	first, n := b.vectorField(table, field, 1)
	return b.bytes[first : first+n]
}
