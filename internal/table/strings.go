package table

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"millrace/internal/arrowipc"
	"millrace/internal/operator"
)

// byteStrings holds the byte strings of a table's records. They are in one block of memory, in the order in which
// batches completed.
type byteStrings struct {
	mu    sync.Mutex // guards bytes during PutStrings
	bytes []byte
	spans [][]arrowipc.Span // position of each record's bytes, by operator; nil for operators without byte strings
	part  [][]arrowipc.Span // reused memory for the result of slice
}

// spanBytes is the size of a Span in bytes.
const spanBytes = 16

// reset prepares b for a message with the given number of records, which have no byte strings yet.
func (b *byteStrings) reset(ops []operator.Operator, records int) {
	b.bytes = b.bytes[:0]
	b.spans = resized(b.spans[:cap(b.spans)], len(ops)) // keeps the memory of operators that the last message didn't have
	for i, op := range ops {
		if _, ok := op.(operator.Variable); !ok {
			b.spans[i] = nil
			continue
		}
		b.spans[i] = resized(b.spans[i], records)
		clear(b.spans[i])
	}
}

func (b *byteStrings) size() int64 {
	size := int64(cap(b.bytes))
	for _, spans := range b.spans[:cap(b.spans)] {
		size += spanBytes * int64(cap(spans))
	}
	return size
}

// maxStrings returns the maximum memory for the byte strings and for one record's values. Memory grows in steps, so it
// may be larger than the byte strings.
func maxStrings(ops []operator.Operator, records, stringBytes int) (limit int64) {
	for _, op := range ops {
		if _, ok := op.(operator.Variable); ok {
			limit += spanBytes*int64(records) + 2*int64(op.Stride()) + 64
		}
	}
	if limit > 0 {
		limit += 4*int64(stringBytes) + 64
	}
	return limit
}

// clear removes the byte strings of the operator with index op for record i.
func (b *byteStrings) clear(op, i int) {
	if spans := b.spans[op]; spans != nil {
		spans[i] = arrowipc.Span{}
	}
}

// bytesOf returns the total length of the byte strings of the records [from, to).
func (b *byteStrings) bytesOf(from, to int) (bytes int) {
	for _, spans := range b.spans {
		for _, span := range spans[min(from, len(spans)):min(to, len(spans))] {
			bytes += span.To - span.From
		}
	}
	return bytes
}

// slice returns the positions of the byte strings of the records [from, to).
func (b *byteStrings) slice(from, to int) [][]arrowipc.Span {
	b.part = resized(b.part, len(b.spans))
	for i, spans := range b.spans {
		if b.part[i] = nil; spans != nil {
			b.part[i] = spans[from:to]
		}
	}
	return b.part
}

// appendBinary appends the start of each record's byte strings, the end of the last record's byte strings, and then the bytes.
func (b *byteStrings) appendBinary(dst []byte, spans []arrowipc.Span) []byte {
	at := 0
	for _, span := range spans {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(at))
		at += span.To - span.From
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(at))
	for _, span := range spans {
		dst = append(dst, b.bytes[span.From:span.To]...)
	}
	return appendPadding(dst, at)
}

// PutStrings copies the byte strings of the operator with index op for consecutive records, beginning with index first.
// results is the output of the operator's kernel for a batch, and offsets is the batch's offsets table. row is the row
// of the first record in the batch. PutStrings does nothing for an operator whose kernel has no byte strings.
func (t *Table) PutStrings(op, first, records int, results []byte, offsets []uint32, row int) {
	v, ok := operator.KernelOf(t.ops[op]).(operator.Variable)
	if !ok {
		return
	}
	s := &t.strings
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range records {
		from := len(s.bytes)
		s.bytes = v.AppendStrings(s.bytes, results, offsets, row+i)
		s.spans[op][first+i] = arrowipc.Span{From: from, To: len(s.bytes)}
	}
}

// PutValue sets the value of the operator with index op for record i; see operator.Variable.
func (t *Table) PutValue(op, i int, value []byte) {
	stride := t.ops[op].Stride()
	copy(t.result(op, i), value[:stride])
	if t.strings.spans[op] == nil {
		if len(value) > stride {
			panic(fmt.Sprintf("table: %d bytes for %v: it has no byte strings", len(value), t.ops[op]))
		}
		return
	}
	s := &t.strings
	from := len(s.bytes)
	s.bytes = append(s.bytes, value[stride:]...)
	s.spans[op][i] = arrowipc.Span{From: from, To: len(s.bytes)}
}

// collect sets t.results to the values of record i.
func (t *Table) collect(i int) {
	t.value = t.value[:0]
	for op := range t.ops {
		t.results[op] = t.result(op, i)
		if spans := t.strings.spans[op]; spans != nil {
			start := len(t.value)
			t.value = append(append(t.value, t.results[op]...), t.strings.bytes[spans[i].From:spans[i].To]...)
			t.results[op] = slices.Clip(t.value[start:])
		}
	}
}
