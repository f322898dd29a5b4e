package frame

import "encoding/binary"

// splitLengths indexes records that follow their lengths as big-endian uint32.
func (f *Frame) splitLengths(body []byte) error {
	const size = 4
	for pos := 0; pos < len(body); {
		if f.full() {
			return f.tooMany(pos)
		}
		left := len(body) - pos - size
		if left < 0 {
			return f.misframed(pos, "the length of record %d takes %d bytes, but the body has only %d more", f.Records(), size, left+size)
		}
		n := binary.BigEndian.Uint32(body[pos:])
		if uint64(n) > uint64(left) {
			return f.overrun(pos, uint64(n), left)
		}
		start := pos + size
		pos = start + int(n)
		f.add(start, pos)
	}
	f.endSegment(body, false)
	return nil
}

// splitVarints indexes records that follow their lengths as protobuf varints.
func (f *Frame) splitVarints(body []byte) error {
	for pos := 0; pos < len(body); {
		if f.full() {
			return f.tooMany(pos)
		}
		n, size := binary.Uvarint(body[pos:])
		left := len(body) - pos - size
		switch {
		case size < 0 || size == 0 && left >= binary.MaxVarintLen64:
			return f.misframed(pos, "the length of record %d is no varint of 64 bits", f.Records())
		case size == 0:
			return f.misframed(pos, "the body ends within the length of record %d", f.Records())
		case n > uint64(left):
			return f.overrun(pos, n, left)
		}
		start := pos + size
		pos = start + int(n)
		f.add(start, pos)
	}
	f.endSegment(body, false)
	return nil
}

// overrun returns the error for a record whose length, at offset, exceeds what is left of the body.
func (f *Frame) overrun(offset int, length uint64, left int) error {
	return f.misframed(offset, "record %d has a length of %d bytes, but the body has only %d more", f.Records(), length, left)
}
