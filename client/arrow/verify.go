package arrow

import (
	"encoding/binary"
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// The library doesn't verify the flatbuffers that contain the metadata of messages. It allocates as many elements as a vector declares, and
// a program can't recover from an allocation that is too large. Therefore, Decode verifies all vectors first. The numbers are from
// Schema.fbs and Message.fbs: https://github.com/apache/arrow/tree/main/format
const (
	continuation = 0xFFFFFFFF // precedes the length of the metadata

	messageHeaderType, messageHeader, messageBodyLength = 1, 2, 3
	headerSchema, headerRecordBatch                     = 1, 3

	schemaFields, schemaMetadata, schemaFeatures = 1, 2, 3
	fieldType, fieldDictionary                   = 2, 4
	fieldChildren, fieldMetadata                 = 5, 6

	batchNodes, batchBuffers, batchCompression, batchVariadic = 1, 2, 3, 4

	// fieldTypes has a bit for each type of a result's fields: Int, FloatingPoint, Binary, Utf8, List, Struct_, FixedSizeBinary and
	// FixedSizeList.
	fieldTypes = uint64(1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<12 | 1<<13 | 1<<15 | 1<<16)

	maxElements = 4096 // maximum number of fields and metadata keys of a schema
)

// verify checks the metadata of all messages of a stream. Like the library, it panics if an offset points outside of body.
func verify(body []byte) error {
	for at := 0; at < len(body); {
		if binary.LittleEndian.Uint32(body[at:]) != continuation {
			return fmt.Errorf("byte %d isn't the start of a message", at)
		}
		n := int(binary.LittleEndian.Uint32(body[at+4:]))
		if n == 0 {
			return nil // the end of the stream
		}
		start := at + 8
		length, err := verifyMessage(body[start : start+n])
		if err != nil {
			return fmt.Errorf("message at byte %d: %w", at, err)
		}
		if at = start + n; length < 0 || length > int64(len(body)-at) {
			return fmt.Errorf("message of %d bytes at byte %d: truncated", length, at)
		}
		at += int(length)
	}
	return nil
}

// verifyMessage checks the metadata of one message. It returns the length of the data that follows the metadata.
func verifyMessage(metadata []byte) (int64, error) {
	message := tableAt(metadata, 0)
	at, ok := message.field(messageHeader)
	if !ok {
		return 0, errors.New("without a header")
	}
	header := tableAt(metadata, at)
	length := message.GetInt64Slot(slot(messageBodyLength), 0)
	var err error
	switch kind := message.GetByteSlot(slot(messageHeaderType), 0); kind {
	case headerSchema:
		err = verifySchema(header)
	case headerRecordBatch:
		err = verifyBatch(header)
	default:
		err = fmt.Errorf("header of type %d: a result has a schema and record batches", kind)
	}
	return length, err
}

func verifySchema(schema table) error {
	left := maxElements
	if err := errors.Join(schema.count(schemaMetadata, 4, &left), schema.count(schemaFeatures, 8, &left)); err != nil {
		return err
	}
	return verifyFields(schema, schemaFields, 3, &left)
}

// verifyFields checks a vector of fields and their children. number is the number of the vector in the table parent, and levels is
// the permitted depth of the children. A result needs three levels: the fields of a struct, the elements of a list, and the fields of a
// position.
func verifyFields(parent table, number, levels int, left *int) error {
	if err := parent.count(number, 4, left); err != nil {
		return err
	}
	first, n := parent.vector(number)
	if n > 0 && levels < 0 {
		return errors.New("a column has fields within fields of lists")
	}
	for i := range n {
		field := tableAt(parent.Bytes, first+flatbuffers.UOffsetT(4*i))
		if _, ok := field.field(fieldDictionary); ok {
			return errors.New("a column has a dictionary: no result has one")
		}
		if kind := field.GetByteSlot(slot(fieldType), 0); fieldTypes>>kind&1 == 0 {
			return fmt.Errorf("a column has type %d: no result has this type", kind)
		}
		if err := errors.Join(field.count(fieldMetadata, 4, left), verifyFields(field, fieldChildren, levels-1, left)); err != nil {
			return err
		}
	}
	return nil
}

func verifyBatch(batch table) error {
	if _, ok := batch.field(batchCompression); ok {
		return errors.New("Arrow compressed the record batch by itself: a worker compresses whole results")
	}
	left := len(batch.Bytes)
	return errors.Join(batch.count(batchNodes, 16, &left), batch.count(batchBuffers, 16, &left), batch.count(batchVariadic, 8, &left))
}

// table is a flatbuffer's table. Its methods panic if an offset points outside of the buffer.
type table struct{ flatbuffers.Table }

// tableAt returns the table that the offset at buffer[at] points to.
func tableAt(buffer []byte, at flatbuffers.UOffsetT) table {
	return table{flatbuffers.Table{Bytes: buffer, Pos: at + flatbuffers.GetUOffsetT(buffer[at:])}}
}

// slot returns the position in a vtable of the entry for a field, given the field's number.
func slot(number int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*number) }

// field returns the position of the field with the given number, or false if the table doesn't have the field.
func (t table) field(number int) (flatbuffers.UOffsetT, bool) {
	offset := flatbuffers.UOffsetT(t.Offset(slot(number)))
	return t.Pos + offset, offset > 0
}

// vector returns the position of a vector's first element and the number of its elements.
func (t table) vector(number int) (first flatbuffers.UOffsetT, n int) {
	if at, ok := t.field(number); ok {
		return t.Vector(at - t.Pos), t.VectorLen(at - t.Pos)
	}
	return 0, 0
}

// count checks that a vector lies in the flatbuffer and has at most left elements of size bytes each. It subtracts the
// number of elements from left.
func (t table) count(number, size int, left *int) error {
	first, n := t.vector(number)
	if n > *left || n*size > len(t.Bytes)-int(first) {
		return fmt.Errorf("a vector of its metadata claims %d elements", n)
	}
	*left -= n
	return nil
}
