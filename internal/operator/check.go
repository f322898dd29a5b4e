package operator

import (
	"bytes"
	"fmt"
	"strconv"
)

// Check computes a payload's results with the reference implementation and compares body with the message that ops would produce. The
// error names the first byte that differs.
func (f Format) Check(ops []Operator, payload, body []byte) error {
	records := make([][]byte, len(ops))
	for i, op := range ops {
		records[i] = op.AppendReference(make([]byte, 0, op.Stride()), payload)
	}
	return Compare(body, f.Append(nil, ops, len(payload), records))
}

// Compare returns an error that describes where two texts diverge, with some context. It returns nil if they are equal.
func Compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%d bytes, want %d; byte %d differs: got %s, want %s", len(got), len(want), at, around(got, at), around(want, at))
}

// around quotes the text near position at, at most 40 bytes.
func around(text []byte, at int) string {
	const before, behind = 12, 28
	from, to := max(at-before, 0), min(at+behind, len(text))
	return strconv.Quote(string(text[from:to]))
}
