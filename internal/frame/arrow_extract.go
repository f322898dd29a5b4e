package frame

import (
	"math"

	flatbuffers "github.com/google/flatbuffers/go"
)

// Results extracts the Arrow result from a stream that AppendRows wrote. The result is a stream whose columns are the children of
// the struct called name.
func Results(stream []byte, name string) (results []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil { // rowCopy and flatbuffers panic on an invalid stream
			results, err = nil, invalid(0, "the results can't be read (%s)", faultText(cause))
		}
	}()
	rows, err := findRows(stream)
	if err != nil {
		return nil, err
	}
	rows.limit = math.MaxInt32
	a := annotator{rows: rows, name: name}
	check(rows.schema.Bytes != nil, "the stream ends before its schema")
	a.choose()
	at := len(a.fields) - 1
	check(at >= 0 && !a.kept[at] && typeOf(&a.fields[at]) == typeStruct, "the last column isn't a struct of that name")
	results = appendChildren(nil, &a.fields[at])
	for n := range rows.batches {
		c := rows.copier(n, math.MaxInt32)
		var set rowSet
		set.add(0, int(c.batch.message.header.GetInt64Slot(batchLength, 0)))
		for i := range a.fields {
			c.out = newBatch{}
			c.copyField(&a.fields[i], &set)
		}
		const numbers = 2 // numbers in a node, and in a buffer; the struct has one node and one buffer
		c.out.nodes, c.out.buffers = c.out.nodes[numbers:], c.out.buffers[numbers:]
		results = c.out.appendMessage(results, set.rows)
	}
	return append(results, endOfStream...), nil
}

// appendChildren appends the message with a schema whose columns are the children of a field.
func appendChildren(dst []byte, field *flatbuffers.Table) []byte {
	b := flatbuffers.NewBuilder(len(field.Bytes) + 1<<10)
	message := embed(b, field.Bytes)
	var offsets []flatbuffers.UOffsetT
	for child := range tablesIn(field, fieldChildren) {
		offsets = append(offsets, message.offset(child.Pos))
	}
	return finishSchema(dst, b, offsets, 0)
}
