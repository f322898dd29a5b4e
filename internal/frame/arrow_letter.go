package frame

import (
	"encoding/binary"

	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowRows finds rows of an Arrow stream, for dead letters and annotated results.
type arrowRows struct {
	schema  flatbuffers.Table
	head    []byte       // the message with the schema
	batches []arrowBatch // record batches with rows, in order
	body    []byte

	dictionaries []dictionaryBatch // dictionary batches of the whole stream, in order

	inflated map[int][]byte // decompressed buffers of one batch
	of       int            // index of that batch
	bytes    int            // total length of inflated
	limit    int            // maximum of bytes

	size int // for AppendRows: total length of the stream, of its decompressed buffers, and of the metadata of results
}

// arrowBatch is a record batch of the stream.
type arrowBatch struct {
	first        int // index of its first record
	message      arrowMessage
	dictionaries int // number of the dictionary batches before it
}

// dictionaryBatch is a message with values of a dictionary.
type dictionaryBatch struct {
	id      int64
	message []byte
}

// letter returns an Arrow stream of the row with record i. ok is false if the row can't be copied.
func (f *Frame) letter(i int) (stream []byte, ok bool) {
	defer func() {
		if recover() != nil { // rowCopy and flatbuffers panic on an invalid batch
			stream, ok = nil, false
		}
	}()
	if f.arrow.rows == nil {
		rows, err := findRows(f.arrow.body)
		if err != nil {
			return nil, false
		}
		rows.limit = f.limits.bytes
		f.arrow.rows = rows
	}
	r := f.arrow.rows
	c := r.copier(r.batchOf(i), f.limits.bytes)
	var row rowSet
	row.add(i-c.batch.first, i-c.batch.first+1)
	for field := range tablesIn(&r.schema, schemaFields) {
		c.copyField(&field, &row)
	}
	stream = append(stream, r.head...)
	for _, d := range r.dictionaries[:c.batch.dictionaries] {
		stream = append(stream, d.message...)
	}
	stream = c.out.appendMessage(stream, row.rows)
	return append(stream, endOfStream...), true
}

const endOfStream = "\xff\xff\xff\xff\x00\x00\x00\x00"

// findRows reads the metadata of all messages of a stream, which Open has accepted.
func findRows(body []byte) (*arrowRows, error) {
	r := &arrowRows{body: body, of: -1}
	s := arrowStream{frame: &Frame{}, body: body}
	records := 0
	for {
		var m arrowMessage
		more, err := s.next(&m)
		if err != nil || !more {
			return r, err
		}
		message := body[m.at:s.pos:s.pos]
		switch m.kind {
		case headerSchema:
			r.schema, r.head = m.header, message
		case headerDictionaryBatch:
			const id = 4
			r.dictionaries = append(r.dictionaries, dictionaryBatch{m.header.GetInt64Slot(id, 0), message})
		case headerRecordBatch:
			if rows := int(m.header.GetInt64Slot(batchLength, 0)); rows > 0 {
				r.batches = append(r.batches, arrowBatch{first: records, message: m, dictionaries: len(r.dictionaries)})
				records += rows
			}
		}
	}
}

// at returns a buffer of the batch, decompressed.
func (c *rowCopy) at(index int) []byte {
	b, err := c.batch.message.buffer(index)
	codec, compressed, wrong := c.batch.message.codec()
	check(err == nil && wrong == nil, "a buffer is missing or lies outside of its message")
	if !compressed || b.length == 0 {
		return b.bytes(c.body)
	}
	if inflated, ok := c.rows.inflated[index]; ok {
		return inflated
	}
	return c.inflate(index, &b, codec)
}

// inflate decompresses a buffer. The limit holds for all buffers of the batch together.
func (c *rowCopy) inflate(index int, b *arrowBuffer, codec uint8) []byte {
	size, err := b.inflatedSize(c.body)
	check(err == nil && size <= int64(c.rows.limit-c.rows.bytes), "a buffer is too large")
	src := c.body[b.pos+inflatedPrefix : b.pos+b.length]
	out := src
	if binary.LittleEndian.Uint64(c.body[b.pos:]) != ^uint64(0) {
		out = make([]byte, size)
		check(decompress(codec, out, src) == nil, "a buffer can't be decompressed")
	}
	if c.rows.inflated == nil {
		c.rows.inflated = map[int][]byte{}
	}
	c.rows.inflated[index] = out
	c.rows.bytes += int(size)
	return out
}

// appendMessage appends the message with the new batch, which has the given number of rows.
func (o *newBatch) appendMessage(dst []byte, rows int) []byte {
	b := flatbuffers.NewBuilder(1 << 10)
	nodes, buffers := structs(b, o.nodes), structs(b, o.buffers)
	b.StartVector(8, len(o.variadic), 8)
	for i := len(o.variadic) - 1; i >= 0; i-- {
		b.PrependInt64(o.variadic[i])
	}
	variadic := b.EndVector(len(o.variadic))
	b.StartObject(5)
	b.PrependInt64Slot(slot(batchLength), int64(rows), 0)
	b.PrependUOffsetTSlot(slot(batchNodes), nodes, 0)
	b.PrependUOffsetTSlot(slot(batchBuffers), buffers, 0)
	if len(o.variadic) > 0 {
		b.PrependUOffsetTSlot(slot(batchVariadicCounts), variadic, 0)
	}
	batch := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(slot(messageVersion), version5, 0)
	b.PrependByteSlot(slot(messageHeaderType), headerRecordBatch, 0)
	b.PrependUOffsetTSlot(slot(messageHeader), batch, 0)
	b.PrependInt64Slot(slot(messageBodyLength), int64(len(o.data)), 0)
	b.Finish(b.EndObject())
	return append(appendMetadata(dst, b.FinishedBytes()), o.data...)
}

// slot returns the number of a field of a table, given its offset in the table's description.
func slot(offset flatbuffers.VOffsetT) int { return int(offset-4) / 2 }

// appendMetadata appends the start of a message, whose buffers follow.
func appendMetadata(dst, metadata []byte) []byte {
	padding := -len(metadata) & 7
	dst = binary.LittleEndian.AppendUint32(dst, continuation)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(metadata)+padding))
	return append(append(dst, metadata...), make([]byte, padding)...)
}

// structs adds a vector of structs of two numbers each.
func structs(b *flatbuffers.Builder, numbers []int64) flatbuffers.UOffsetT {
	b.StartVector(16, len(numbers)/2, 8)
	for i := len(numbers) - 1; i >= 0; i-- {
		b.PrependInt64(numbers[i])
	}
	return b.EndVector(len(numbers) / 2)
}
