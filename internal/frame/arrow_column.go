package frame

import (
	"encoding/binary"
	"math"
	"slices"

	"millrace/internal/record"
)

// addArrowColumn adds the values of a column as records. f.arrow.buffers holds the column's buffers, which lie in base.
func (f *Frame) addArrowColumn(typ arrowType, base []byte, rows int, nulls int64) error {
	present, err := f.presence(base, rows, nulls)
	if err != nil {
		return err
	}
	if typ.isView() {
		return f.addViews(base, present, rows)
	}
	offsets, values := &f.arrow.buffers[1], &f.arrow.buffers[2]
	width := 4
	if typ.isLarge() {
		width = 8
	}
	if offsets.length/width <= rows {
		return invalid(offsets.at, "the buffer of offsets has %d bytes, too few for %d rows: %s", offsets.length, rows, adviceOnStream)
	}
	first := f.Records()
	var longest int
	var wrong int
	if typ.isLarge() {
		longest, wrong = addLargeOffsets(f, offsets.bytes(base), values, rows)
	} else {
		longest, wrong = addOffsets(f, offsets.bytes(base), values, rows)
	}
	if wrong >= 0 {
		return invalid(offsets.fault(width*wrong), "offset %d of the column lies before the offset in front of it, or outside of the values: %s", wrong, adviceOnStream)
	}
	f.bytes += int(f.ends[len(f.ends)-1] - f.starts[first])
	packed := true
	if len(present) > 0 || longest > f.limits.record {
		packed = f.markRecords(first, present)
	}
	f.endSegment(base, packed)
	return nil
}

func (a *arrowBuffer) bytes(base []byte) []byte { return base[a.pos : a.pos+a.length] }

// presence returns the buffer that marks the nulls of a column, or nil if all rows have a value. Bit i is 1 if row i has a value.
func (f *Frame) presence(base []byte, rows int, nulls int64) ([]byte, error) {
	b := &f.arrow.buffers[0]
	switch {
	case nulls > 0 && b.length == 0 || b.length > 0 && b.length < (rows+7)/8:
		return nil, invalid(b.at, "the buffer that marks the nulls has %d bytes, too few for %d rows: %s", b.length, rows, adviceOnStream)
	case b.length == 0:
		return nil, nil
	}
	return b.bytes(base), nil
}

// isNull reports whether row i has no value.
func isNull(present []byte, i int) bool { return present[i>>3]>>(i&7)&1 == 0 }

// grow adds the given number of records to the index. The caller sets the returned starts and ends of these records.
func (f *Frame) grow(rows int) (starts, ends []uint32) {
	first := len(f.starts)
	f.starts = slices.Grow(f.starts, rows)[:first+rows]
	f.ends = slices.Grow(f.ends, rows)[:first+rows]
	return f.starts[first:], f.ends[first:]
}

// addOffsets adds records that lie back to back in values, delimited by offsets of 4 bytes. It returns the length of
// the longest record, and the index of the first wrong offset, or -1 if there is none.
func addOffsets(f *Frame, offsets []byte, values *arrowBuffer, rows int) (longest, wrong int) {
	last := uint32(values.length)
	previous := binary.LittleEndian.Uint32(offsets)
	if previous > last {
		return 0, 0
	}
	starts, ends := f.grow(rows)
	ends = ends[:len(starts)]
	offsets = offsets[4 : 4+4*len(starts)]
	pos, limit := uint32(values.pos), uint32(0)
	for i := range starts {
		next := binary.LittleEndian.Uint32(offsets[4*i:])
		if next < previous || next > last {
			return 0, i + 1
		}
		starts[i], ends[i] = pos+previous, pos+next
		limit = max(limit, next-previous)
		previous = next
	}
	return int(limit), -1
}

// addLargeOffsets is like addOffsets, but for offsets of 8 bytes.
func addLargeOffsets(f *Frame, offsets []byte, values *arrowBuffer, rows int) (longest, wrong int) {
	last := uint64(values.length)
	previous := binary.LittleEndian.Uint64(offsets)
	if previous > last {
		return 0, 0
	}
	starts, ends := f.grow(rows)
	for i := range starts {
		next := binary.LittleEndian.Uint64(offsets[8*(i+1):])
		if next < previous || next > last {
			return 0, i + 1
		}
		starts[i], ends[i] = uint32(values.pos)+uint32(previous), uint32(values.pos)+uint32(next)
		longest = max(longest, int(next-previous))
		previous = next
	}
	return longest, -1
}

// markRecords sets the status of records from index first on that are null or too large. It subtracts their lengths
// from the bytes of the frame, and reports whether the remaining records still lie back to back.
func (f *Frame) markRecords(first int, present []byte) (packed bool) {
	packed = true
	for i := first; i < len(f.starts); i++ {
		length := int(f.ends[i] - f.starts[i])
		switch {
		case len(present) > 0 && isNull(present, i-first):
			f.setStatus(i, record.Null)
			f.ends[i] = f.starts[i] // some writers store bytes for a null
		case length > f.limits.record:
			f.setStatus(i, record.TooLarge)
		default:
			continue
		}
		f.bytes -= length
		packed = packed && length == 0
	}
	return packed
}

// addViews adds the records of a view column. A view has 16 bytes. It contains the length of the value, and either the
// value itself or its position in a data buffer.
func (f *Frame) addViews(base, present []byte, rows int) error {
	const size, inline = 16, 12
	views, data := f.arrow.buffers[1], f.arrow.buffers[2:]
	if views.length/size < rows {
		return invalid(views.at, "the buffer of views has %d bytes, too few for %d rows: %s", views.length, rows, adviceOnStream)
	}
	for i := range rows {
		pos := views.pos + size*i
		if len(present) > 0 && isNull(present, i) {
			f.add(pos, pos)
			f.setStatus(f.Records()-1, record.Null)
			continue
		}
		view := base[pos : pos+size]
		length := binary.LittleEndian.Uint32(view)
		start := pos + 4
		if length > inline {
			buffer, offset := binary.LittleEndian.Uint32(view[8:]), binary.LittleEndian.Uint32(view[12:])
			if uint64(buffer) >= uint64(len(data)) || uint64(offset)+uint64(length) > uint64(data[buffer].length) {
				return invalid(views.fault(size*i), "view %d of the column lies outside of its data: %s", i, adviceOnStream)
			}
			start = data[buffer].pos + int(offset)
		}
		f.add(start, start+int(length))
		if f.bytes > f.limits.bytes { // values may overlap
			return f.valuesTooLarge(views.fault(size * i))
		}
	}
	f.endSegment(base, false)
	return nil
}

// valuesTooLarge returns the error for values that share memory and have more bytes in total than a frame may have.
func (f *Frame) valuesTooLarge(offset int) error {
	return tooLarge(offset, "the values of the column have more than %d bytes: send smaller frames, or raise MILLRACE_FRAME_BYTES", f.limits.bytes)
}

// dictionaryBatch reads the values of the column's dictionary. They replace the values of an earlier message.
func (s *arrowStream) dictionaryBatch(m *arrowMessage) error {
	const id, data, isDelta = 4, 6, 8 // slots of the table DictionaryBatch
	if s.column.dictionary.width == 0 || m.header.GetInt64Slot(id, 0) != s.column.dictionary.id {
		return nil // a dictionary of another column
	}
	if m.header.GetBoolSlot(isDelta, false) {
		return invalid(m.at, "the Arrow message extends a dictionary: write the column without a dictionary, or with one whole dictionary")
	}
	var ok bool
	if m.header, ok = tableIn(&m.header, data); !ok {
		return m.notFlatbuffer()
	}
	a := &s.frame.arrow
	if a.dictionary == nil {
		a.dictionary = &Frame{}
	}
	values := a.dictionary
	if values.Records() > 0 {
		values.arrow.slab = nil // earlier records refer to this slab
		values.Reset()
	}
	values.limits = limits{records: math.MaxInt32, bytes: s.frame.limits.bytes - a.inflated, record: math.MaxUint32}
	stream := arrowStream{frame: values, body: s.body, column: arrowColumn{typ: s.column.typ}}
	if err := stream.recordBatch(m); err != nil {
		return err
	}
	values.padStatuses()
	s.hasDictionary = true
	a.inflated += values.arrow.inflated
	return nil
}

// addIndices adds the values to which the rows of a dictionary-encoded column refer. A row is null if it is marked as null,
// or if its value is null in the dictionary.
func (f *Frame) addIndices(d *arrowDictionary, base []byte, rows int, nulls int64) error {
	present, err := f.presence(base, rows, nulls)
	if err != nil {
		return err
	}
	indices := &f.arrow.buffers[1]
	if indices.length/d.width < rows {
		return invalid(indices.at, "the buffer of indices has %d bytes, too few for %d rows: %s", indices.length, rows, adviceOnStream)
	}
	values := f.arrow.dictionary
	raw := indices.bytes(base)
	for i := range rows {
		index := d.index(raw, i)
		if len(present) > 0 && isNull(present, i) || index < uint64(values.Records()) && values.Status(int(index)) == record.Null {
			f.add(0, 0)
			f.setStatus(f.Records()-1, record.Null)
			continue
		}
		if index >= uint64(values.Records()) {
			return invalid(indices.fault(d.width*i), "index %d of the column lies outside of its dictionary: %s", i, adviceOnStream)
		}
		f.add(int(values.starts[index]), int(values.ends[index]))
		if f.bytes > f.limits.bytes { // many rows may refer to one value
			return f.valuesTooLarge(indices.fault(d.width * i))
		}
	}
	var memory []byte
	if values.Records() > 0 {
		memory = values.segments[0].base
	}
	f.endSegment(memory, false)
	return nil
}

// index returns the index of row i. A negative index becomes a number larger than any dictionary.
func (a *arrowDictionary) index(raw []byte, i int) uint64 {
	switch a.width {
	case 1:
		return uint64(raw[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(raw[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return binary.LittleEndian.Uint64(raw[8*i:])
}
