package table

import "millrace/internal/operator"

// The results of the kernel of a stateful operator are keys. A table stores the keys in addition to the values, which PutValue sets after
// the operator's state has decided on the records. Everything else in this package uses the values.

// resetKeys prepares the memory for the keys of each stateful operator, and sets its values to zeros.
func (t *Table) resetKeys() {
	t.keys = resized(t.keys[:cap(t.keys)], len(t.ops)) // keeps the memory of operators that the last message didn't have
	for i, op := range t.ops {
		s, ok := op.(operator.Stateful)
		if !ok {
			t.keys[i] = nil
			continue
		}
		t.keys[i] = resized(t.keys[i], t.Records()*s.Kernel().Stride())
		clear(t.columns[i])
	}
}

// AppendKeys appends the keys of the records with the given indices, back to back. op is the index of a stateful operator.
func (t *Table) AppendKeys(dst []byte, op int, records []uint32) []byte {
	stride := t.ops[op].(operator.Stateful).Kernel().Stride()
	for _, i := range records {
		dst = append(dst, t.keys[op][int(i)*stride:][:stride]...)
	}
	return dst
}

// MaxKeys returns the maximum memory for the keys of a message with the given number of records. It is 0 if no operator is stateful.
func MaxKeys(ops []operator.Operator, records int) (bytes int64) {
	for _, op := range ops {
		if s, ok := op.(operator.Stateful); ok {
			bytes += int64(s.Kernel().Stride()) * int64(records)
		}
	}
	return bytes
}
