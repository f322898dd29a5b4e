package frame

import (
	"bytes"
	"encoding/binary"
	"iter"

	flatbuffers "github.com/google/flatbuffers/go"
)

// These constants are the slots of the fields of the tables Message and RecordBatch in Arrow's Message.fbs.
const (
	messageVersion flatbuffers.VOffsetT = 4 + 2*iota
	messageHeaderType
	messageHeader
	messageBodyLength
)

const (
	batchLength flatbuffers.VOffsetT = 4 + 2*iota
	batchNodes
	batchBuffers
	batchCompression
	batchVariadicCounts
)

// The values of the union MessageHeader.
const (
	headerSchema          = 1
	headerDictionaryBatch = 2
	headerRecordBatch     = 3
)

// Versions of the Arrow format. Streams have version 4 since 2017 and version 5 since 2020.
const (
	version4 = 3
	version5 = 4
)

// continuation is the start of each message since version 0.15 of Arrow. Messages of earlier versions began with their length.
const continuation = 0xffffffff

const adviceOnStream = "send a whole Arrow IPC stream, or set MILLRACE_FRAMING to the framing that the producer uses"

// arrowStream reads the messages of an Arrow IPC stream. It parses the metadata itself, without allocations. It
// decompresses only the column with the records, and checks each length before use.
type arrowStream struct {
	frame *Frame
	body  []byte
	pos   int // start of the next message

	hasColumn     bool
	column        arrowColumn
	hasDictionary bool // whether the dictionary of the column has been read

	keeps bool // whether the column is a kept field instead of the records
}

type arrowMessage struct {
	at       int    // position of the message in the body
	metadata []byte // a FlatBuffer
	reading  bool   // whether a panic means that the metadata is invalid
	header   flatbuffers.Table
	kind     uint8    // type of the header
	version  int16    // version of the Arrow format
	data     arrowRaw // range of the buffers
}

// arrowRaw is a range of the body.
type arrowRaw struct{ pos, length int }

// splitArrow indexes the values of one column of an Arrow IPC stream, over all its record batches.
func (f *Frame) splitArrow(column string, body []byte) error {
	if bytes.HasPrefix(body, []byte("ARROW1")) {
		return invalid(0, "the body is an Arrow file: send it in the IPC stream format")
	}
	f.arrow.body = body
	s := arrowStream{frame: f, body: body}
	for {
		more, err := s.step(&f.arrow.message, column)
		if err == nil && !more && !s.hasColumn {
			err = invalid(s.pos, "the stream ends before its schema: %s", adviceOnStream)
		}
		if err != nil || !more {
			return err
		}
	}
}

// step reads the next message. It returns false at the end of the stream. The accessors of flatbuffers panic if metadata refers to
// bytes outside the metadata, and step turns that panic into an error.
func (s *arrowStream) step(m *arrowMessage, column string) (more bool, err error) {
	defer func() {
		if m.reading && recover() != nil {
			err = m.notFlatbuffer()
		}
	}()
	if more, err = s.next(m); err != nil || !more {
		return false, err
	}
	return true, s.handle(m, column)
}

// next reads the metadata of the next message. It returns false at the end of the stream.
func (s *arrowStream) next(m *arrowMessage) (bool, error) {
	if s.pos == len(s.body) {
		return false, nil
	}
	*m = arrowMessage{at: s.pos, reading: true}
	length, err := s.length()
	if err != nil {
		return false, err
	}
	if length == 0 {
		if left := len(s.body) - s.pos; left > 0 {
			return false, invalid(s.pos, "%d bytes follow the end of the Arrow stream: send one stream per message", left)
		}
		return false, nil
	}
	if left := len(s.body) - s.pos; uint64(length) > uint64(left) {
		return false, invalid(m.at, "the metadata of the Arrow message has %d bytes, but the body has only %d more: %s",
			length, left, adviceOnStream)
	}
	m.metadata = s.body[s.pos : s.pos+int(length) : s.pos+int(length)] // the capacity keeps vectors within the metadata
	s.pos += int(length)
	return true, s.metadata(m)
}

// length reads the length of the next message's metadata. The length is 0 at the end of the stream.
func (s *arrowStream) length() (uint32, error) {
	for range 2 {
		if left := len(s.body) - s.pos; left < 4 {
			return 0, invalid(s.pos, "the length of an Arrow message takes 4 bytes, but the body has only %d more: %s", left, adviceOnStream)
		}
		n := binary.LittleEndian.Uint32(s.body[s.pos:])
		s.pos += 4
		if n != continuation {
			return n, nil
		}
	}
	return 0, invalid(s.pos-4, "an Arrow message has two starts: %s", adviceOnStream)
}

// metadata reads the table Message, and moves the position past the message's buffers.
func (s *arrowStream) metadata(m *arrowMessage) error {
	table := flatbuffers.Table{Bytes: m.metadata, Pos: flatbuffers.GetUOffsetT(m.metadata)}
	m.version = table.GetInt16Slot(messageVersion, 0)
	m.kind = table.GetUint8Slot(messageHeaderType, 0)
	length := table.GetInt64Slot(messageBodyLength, 0)
	left := len(s.body) - s.pos
	var ok bool
	m.header, ok = tableIn(&table, messageHeader)
	switch {
	case !ok:
		return m.notFlatbuffer()
	case m.version < version4 || m.version > version5:
		return invalid(m.at, "the Arrow message has version %d of the format, not 4 or 5: write it with a current library", m.version+1)
	case length < 0 || length > int64(left):
		return invalid(m.at, "the buffers of the Arrow message have %d bytes, but the body has only %d more: %s", length, left, adviceOnStream)
	}
	m.data = arrowRaw{s.pos, int(length)}
	s.pos += int(length)
	return nil
}

// handle processes a message. It reads the schema from the first message, and records or dictionaries from later messages.
func (s *arrowStream) handle(m *arrowMessage, column string) error {
	switch {
	case m.kind == headerSchema && !s.hasColumn:
		schema := arrowSchema{schema: m.header}
		find := schema.findColumn
		if s.keeps {
			find = schema.findKept
		}
		found, fault := find(column)
		if fault != "" {
			return invalid(m.at, "%s", fault)
		}
		s.column, s.hasColumn = found, true
		return nil
	case m.kind == headerRecordBatch && s.hasColumn:
		return s.recordBatch(m)
	case m.kind == headerDictionaryBatch && s.hasColumn:
		return s.dictionaryBatch(m)
	case !s.hasColumn:
		return invalid(m.at, "the Arrow stream doesn't begin with its schema: %s", adviceOnStream)
	}
	return invalid(m.at, "the Arrow message has the type %d, which a stream can't have here: %s", m.kind, adviceOnStream)
}

func (s *arrowStream) recordBatch(m *arrowMessage) error {
	f := s.frame
	length, nulls, ok := m.pair(batchNodes, s.column.node)
	if !ok {
		return m.notFlatbuffer()
	}
	rows := m.header.GetInt64Slot(batchLength, 0)
	if rows < 0 || length != rows {
		return invalid(m.at, "the record batch has %d rows, but its column has %d: %s", rows, length, adviceOnStream)
	}
	if left := f.limits.records - f.Records(); rows > int64(left) {
		return f.tooMany(m.at)
	}
	if rows == 0 {
		return nil
	}
	if s.column.dictionary.width != 0 && !s.hasDictionary {
		return invalid(m.at, "the record batch comes before its dictionary: %s", adviceOnStream)
	}
	first, count, ok := s.buffers(m)
	if !ok {
		return m.notFlatbuffer()
	}
	base, err := f.loadArrowBuffers(m, s.body, first, count, nulls != 0)
	if err != nil {
		return err
	}
	m.reading = false // a panic from here on is a bug
	if s.column.number.kind != noNumber {
		return f.addNumbers(s.column.number, base, int(rows), nulls)
	}
	if s.column.dictionary.width != 0 {
		return f.addIndices(&s.column.dictionary, base, int(rows), nulls)
	}
	return f.addArrowColumn(s.column.typ, base, int(rows), nulls)
}

// buffers returns the index of the column's first buffer in a record batch, and the number of the column's buffers. ok
// is false if the metadata is invalid.
func (s *arrowStream) buffers(m *arrowMessage) (first, count int, ok bool) {
	c := &s.column
	before, ok := m.viewBuffers(c.views)
	first, count = c.buffers+before, 3
	if m.version < version5 {
		first += c.unions
	}
	if c.dictionary.width != 0 || c.number.kind != noNumber {
		return first, 2, ok
	}
	if ok && c.typ.isView() {
		var upTo int
		upTo, ok = m.viewBuffers(c.views + 1)
		count = 2 + upTo - before
	}
	return first, count, ok
}

// viewBuffers returns the number of data buffers of the first n view columns of a record batch. It returns false if the
// batch has fewer view columns, or if a number of buffers is out of range.
func (a *arrowMessage) viewBuffers(n int) (total int, ok bool) {
	const limit = 1 << 31
	if n == 0 {
		return 0, true
	}
	first, counts := vectorIn(&a.header, batchVariadicCounts, 8)
	if n > counts {
		return 0, false
	}
	for i := range n {
		count := a.header.GetInt64(first + flatbuffers.UOffsetT(8*i))
		if count < 0 || count > limit || total > limit {
			return 0, false
		}
		total += int(count)
	}
	return total, true
}

// pair returns element i of the vector of nodes or of buffers. A node has a length and a number of nulls, and a
// buffer has a position and a length. ok is false if the record batch has no such element.
func (a *arrowMessage) pair(slot flatbuffers.VOffsetT, i int) (first, second int64, ok bool) {
	const size = 16
	vector, n := vectorIn(&a.header, slot, size)
	if i >= n {
		return 0, 0, false
	}
	at := vector + flatbuffers.UOffsetT(size*i)
	return a.header.GetInt64(at), a.header.GetInt64(at + 8), true
}

// buffer returns buffer i of a record batch without decompressing it.
func (a *arrowMessage) buffer(i int) (arrowBuffer, error) {
	pos, length, ok := a.pair(batchBuffers, i)
	if !ok {
		return arrowBuffer{}, a.notFlatbuffer()
	}
	if all := int64(a.data.length); pos < 0 || length < 0 || pos > all || length > all-pos {
		return arrowBuffer{}, invalid(a.at, "buffer %d of the record batch lies outside of its message: %s", i, adviceOnStream)
	}
	at := a.data.pos + int(pos)
	return arrowBuffer{pos: at, length: int(length), at: at}, nil
}

// codec returns the codec of a record batch. compressed reports whether the batch's buffers are compressed.
func (a *arrowMessage) codec() (codec uint8, compressed bool, err error) {
	const codecSlot, methodSlot = 4, 6
	compression, ok := tableIn(&a.header, batchCompression)
	if !ok {
		return 0, false, nil
	}
	codec = compression.GetUint8Slot(codecSlot, 0)
	if method := compression.GetUint8Slot(methodSlot, 0); method != 0 || codec > codecZstd {
		return 0, false, invalid(a.at, "the record batch has an unknown compression: use lz4, zstd or none")
	}
	return codec, true, nil
}

// notFlatbuffer returns the error for metadata that isn't a valid flatbuffer.
func (a *arrowMessage) notFlatbuffer() error {
	return invalid(a.at, "the metadata of the Arrow message is not valid: %s", adviceOnStream)
}

// tableIn returns the table to which a field of another table refers. ok is false if the field is absent.
func tableIn(t *flatbuffers.Table, slot flatbuffers.VOffsetT) (child flatbuffers.Table, ok bool) {
	at := t.Offset(slot)
	if at == 0 {
		return child, false
	}
	t.Union(&child, flatbuffers.UOffsetT(at))
	return child, true
}

// vectorIn returns the position of a vector's first element and the number of elements. size is the size of an element
// in bytes. It panics if the vector doesn't lie entirely in the metadata.
func vectorIn(t *flatbuffers.Table, slot flatbuffers.VOffsetT, size int) (first flatbuffers.UOffsetT, n int) {
	at := flatbuffers.UOffsetT(t.Offset(slot))
	if at == 0 {
		return 0, 0
	}
	first, n = t.Vector(at), t.VectorLen(at)
	_ = t.Bytes[first:][:n*size]
	return first, n
}

// tablesIn iterates over the tables to which the elements of a vector refer.
func tablesIn(t *flatbuffers.Table, slot flatbuffers.VOffsetT) iter.Seq[flatbuffers.Table] {
	return func(yield func(flatbuffers.Table) bool) {
		const size = 4
		first, n := vectorIn(t, slot, size)
		for at := first; at < first+flatbuffers.UOffsetT(size*n); at += size {
			if !yield(flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}) {
				return
			}
		}
	}
}
