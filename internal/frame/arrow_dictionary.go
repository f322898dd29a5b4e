package frame

import (
	"encoding/binary"
	"math"

	"millrace/internal/record"
)

// arrowDictionary describes the dictionary of a column. Each row of the column is an index into the values, which come in
// messages of their own.
type arrowDictionary struct {
	id    int64
	width int // bytes of an index; 0 if the column has no dictionary
}

// dictionary reads how a field is dictionary-encoded.
func (s *arrowSchema) dictionary(field int) arrowDictionary {
	const id, indexType, bitWidth = 0, 1, 0 // fields of the tables DictionaryEncoding and Int
	encoding := s.tableField(field, fieldDictionary)
	if encoding == 0 {
		return arrowDictionary{}
	}
	d := arrowDictionary{id: s.int64Field(encoding, id), width: 4}
	if integer := s.tableField(encoding, indexType); integer != 0 {
		bits := 0
		if at := s.slot(integer, bitWidth); at != 0 {
			bits = int(s.uint32(at))
		}
		switch bits {
		case 8, 16, 32, 64:
			d.width = bits / 8
		default:
			s.broken = true
		}
	}
	return d
}

// dictionaryBatch reads the values of the column's dictionary. It replaces those of an earlier message.
func (s *arrowStream) dictionaryBatch(m *arrowMessage) error {
	const id, data, isDelta = 0, 1, 2 // fields of the table DictionaryBatch
	if s.column.dictionary.width == 0 || m.int64Field(m.header, id) != s.column.dictionary.id {
		return nil // of another column
	}
	if m.uint8Field(m.header, isDelta) != 0 {
		return invalid(m.at, "the Arrow message extends a dictionary: write the column without a dictionary, or with one whole dictionary")
	}
	if m.header = m.tableField(m.header, data); m.header == 0 || m.broken {
		return m.notFlatbuffer()
	}
	a := &s.frame.arrow
	if a.dictionary == nil {
		a.dictionary = &Frame{}
	}
	values := a.dictionary
	if values.Records() > 0 {
		values.arrow.slab = nil // the records before this message refer to it
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

// index returns the index of row i. A negative one becomes larger than any dictionary.
func (d *arrowDictionary) index(raw []byte, i int) uint64 {
	switch d.width {
	case 1:
		return uint64(raw[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(raw[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return binary.LittleEndian.Uint64(raw[8*i:])
}
