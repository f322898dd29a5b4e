package compression

import (
	"bytes"
	"slices"
	"testing"

	"millrace/internal/corpus"
)

// TestCompressedBytesDependOnTheBodyAlone: every worker must produce the same bytes for a result.
func TestCompressedBytesDependOnTheBodyAlone(t *testing.T) {
	for _, e := range ofResults {
		var warm Compressor
		for i := range 8 {
			warm.Append(nil, e, corpus.Text(uint64(i), 9000*i))
			warm.Append(nil, e, corpus.Bytes(uint64(i), 1000*i))
			for name, body := range bodies() {
				body = body[:min(len(body), 70_000)]
				used := warm.Append(slices.Grow([]byte("before"), 10_000*i), e, body)
				if want := new(Compressor).Append([]byte("before"), e, body); !bytes.Equal(used, want) {
					t.Fatalf("%v, %s: a reused compressor writes %d bytes, and a new compressor writes %d other bytes", e, name, len(used), len(want))
				}
			}
		}
	}
}
