package arrowipc

import (
	"math/rand/v2"
	"testing"

	"millrace/internal/record"
)

var (
	crc32c  = Column{Name: "crc32c", Spec: "crc32c", Kind: Uint32, Width: 4}
	minhash = Column{Name: "minhash", Spec: "minhash?k=24&hashes=128&seed=1", Kind: Uint32List, Width: 512}
	other   = Column{Name: "sha", Spec: "sha?n=3", Kind: Bytes, Width: 3}
)

// someRows returns n random rows of which one in failing isn't OK; none if failing is 0.
func someRows(columns []Column, n, failing int) Rows {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	rows := Rows{Lengths: make([]uint64, n), Statuses: make([]record.Status, n)}
	for i := range n {
		rows.Lengths[i] = r.Uint64N(4096)
		if failing > 0 && r.IntN(failing) == 0 {
			rows.Statuses[i] = record.Status(1 + r.IntN(int(record.Statuses)-1))
		}
	}
	for _, c := range columns {
		values := make([]byte, n*c.Width)
		for i := range n {
			if rows.Statuses[i] == record.OK {
				for j := range c.Width {
					values[i*c.Width+j] = byte(r.Uint32())
				}
			}
		}
		rows.Values = append(rows.Values, values)
	}
	return rows
}

func BenchmarkAppend(b *testing.B) {
	for name, columns := range map[string][]Column{"crc32c": {crc32c}, "both": {crc32c, minhash}} {
		b.Run(name, func(b *testing.B) {
			e, rows := NewEncoder(columns), someRows(columns, 2048, 0)
			var dst []byte
			b.SetBytes(512 << 10)
			b.ReportAllocs()
			for b.Loop() {
				dst = e.Append(dst[:0], rows)
			}
		})
	}
}
