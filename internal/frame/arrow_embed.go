package frame

import (
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// This file writes schemas that reuse the columns of other schemas.

// appendSchema appends the message with the schema. The message contains the metadata of both streams unchanged, and refers to
// their columns.
func (a *annotator) appendSchema(dst []byte) []byte {
	b := flatbuffers.NewBuilder(len(a.rows.schema.Bytes) + len(a.results.schema.Bytes) + 1<<10)
	message, results := embed(b, a.rows.schema.Bytes), embed(b, a.results.schema.Bytes)
	var offsets []flatbuffers.UOffsetT
	for i := range a.fields {
		if a.kept[i] {
			offsets = append(offsets, message.offset(a.fields[i].Pos))
		}
	}
	offsets = append(offsets, a.addStruct(b, results))
	const metadata = schemaFields + 2
	var keys flatbuffers.UOffsetT
	if at := flatbuffers.UOffsetT(a.rows.schema.Offset(metadata)); at != 0 {
		keys = message.offset(a.rows.schema.Indirect(a.rows.schema.Pos + at))
	}
	return finishSchema(dst, b, offsets, keys)
}

// finishSchema appends the message with a schema. keys is the offset of the schema's metadata, or 0.
func finishSchema(dst []byte, b *flatbuffers.Builder, columns []flatbuffers.UOffsetT, keys flatbuffers.UOffsetT) []byte {
	fields := references(b, columns)
	b.StartObject(4)
	b.PrependUOffsetTSlot(slot(schemaFields), fields, 0)
	b.PrependUOffsetTSlot(slot(schemaFields)+1, keys, 0)
	schema := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(slot(messageVersion), version5, 0)
	b.PrependByteSlot(slot(messageHeaderType), headerSchema, 0)
	b.PrependUOffsetTSlot(slot(messageHeader), schema, 0)
	b.Finish(b.EndObject())
	return appendMetadata(dst, b.FinishedBytes())
}

// addStruct adds the column with the results, and returns its offset.
func (a *annotator) addStruct(b *flatbuffers.Builder, results embedded) flatbuffers.UOffsetT {
	var offsets []flatbuffers.UOffsetT
	for field := range tablesIn(&a.results.schema, schemaFields) {
		offsets = append(offsets, results.offset(field.Pos))
	}
	children, name := references(b, offsets), b.CreateString(a.name)
	b.StartObject(0)
	details := b.EndObject()
	b.StartObject(7)
	b.PrependUOffsetTSlot(slot(fieldName), name, 0)
	b.PrependByteSlot(slot(fieldTypeType), byte(typeStruct), 0)
	b.PrependUOffsetTSlot(slot(fieldType), details, 0)
	b.PrependUOffsetTSlot(slot(fieldChildren), children, 0)
	return b.EndObject()
}

// embedded is a FlatBuffer within another FlatBuffer. Tables of the outer FlatBuffer may refer to tables of the inner one.
type embedded struct {
	start  flatbuffers.UOffsetT // offset of its first byte, as the builder counts offsets
	length int
}

// embed adds the FlatBuffer inner to the FlatBuffer of b.
func embed(b *flatbuffers.Builder, inner []byte) embedded {
	const word = 8
	words := (len(inner) + word - 1) / word
	padded := append(append(make([]byte, 0, words*word), inner...), make([]byte, words*word-len(inner))...)
	b.StartVector(word, words, word)
	for i := words - 1; i >= 0; i-- {
		b.PrependUint64(flatbuffers.GetUint64(padded[word*i:]))
	}
	return embedded{b.EndVector(words) - flatbuffers.SizeUOffsetT, len(inner)}
}

// offset converts a position in the inner FlatBuffer to an offset of the builder.
func (e embedded) offset(pos flatbuffers.UOffsetT) flatbuffers.UOffsetT {
	check(int(pos) < e.length, fmt.Sprintf("the metadata refers to byte %d", pos))
	return e.start - pos
}

// references adds a vector of references.
func references(b *flatbuffers.Builder, offsets []flatbuffers.UOffsetT) flatbuffers.UOffsetT {
	b.StartVector(flatbuffers.SizeUOffsetT, len(offsets), flatbuffers.SizeUOffsetT)
	for i := len(offsets) - 1; i >= 0; i-- {
		b.PrependUOffsetT(offsets[i])
	}
	return b.EndVector(len(offsets))
}
