package arrowipc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"millrace/internal/record"
)

var (
	crc32c  = Column{Name: "crc32c", Spec: "crc32c", Kind: Single, Width: 4, Fields: []Field{{"checksum", Uint32Type, 0, 0}}}
	minhash = Column{Name: "minhash", Spec: "minhash?k=24&hashes=128&seed=42", Kind: Single, Width: 512, Fields: []Field{{"signature", Uint32Type, 128, 0}}}
	other   = Column{Name: "sha", Spec: "sha?n=3", Kind: Bytes, Width: 3}
)

// someRows returns n random rows. One row in failing isn't OK. If failing is 0, all rows are OK.
func someRows(columns []Column, n, failing int) Rows {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	rows := Rows{Lengths: make([]uint64, n), Statuses: make([]record.Status, n)}
	for i := range n {
		rows.Lengths[i] = r.Uint64N(4096)
		if failing > 0 && r.IntN(failing) == 0 {
			rows.Statuses[i] = record.Status(1 + r.IntN(int(record.Statuses)-1))
		}
	}
	for k, c := range columns {
		if c.Fields != nil {
			rows.addSome(k, c, len(columns), r)
			continue
		}
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

// all has a field of each type, with gaps between the fields. packed has fields without gaps.
var (
	all = Column{Name: "all", Spec: "all?x=1", Kind: Struct, Width: 96, Fields: []Field{
		{"a", Uint8Type, 0, 0}, {"b", Int8Type, 3, 1}, {"c", Uint16Type, 0, 4}, {"d", Int16Type, 2, 6}, {"text", BinaryType, 0, 12},
		{"e", Uint32Type, 0, 16}, {"f", Int32Type, 1, 20}, {"g", Float32Type, 2, 24}, {"h", Uint64Type, 0, 32}, {"i", Int64Type, 2, 40},
		{"more", BinaryType, 0, 56}, {"j", Float64Type, 3, 64}, {"last", Uint8Type, 5, 88},
	}}
	packed = Column{Name: "packed", Spec: "packed", Kind: Struct, Width: 4, Fields: []Field{{"peak", Uint32Type, 0, 0}}}
	number = Column{Name: "number", Spec: "number", Kind: Single, Width: 8, Fields: []Field{{"n", Float64Type, 0, 0}}}
	list   = Column{Name: "list", Spec: "list", Kind: Single, Width: 6, Fields: []Field{{"n", Int16Type, 3, 0}}}
	places = Column{Name: "places", Spec: "places?x=2", Kind: Struct, Width: 24, Fields: []Field{
		{"of", PositionType, 0, 0}, {"n", Uint32Type, 0, 16}, {"also", PositionsType, 0, 20},
	}}
	text = Column{Name: "text", Spec: "text", Kind: Single, Width: 4, Fields: []Field{{"n", BinaryType, 0, 0}}}
)

// addSome adds random values to column k, which must have fields.
func (r *Rows) addSome(k int, c Column, columns int, random *rand.Rand) {
	values := make([]byte, len(r.Lengths)*c.Width)
	if c.binaries() > 0 && r.Spans == nil {
		r.Spans = make([][]Span, columns)
	}
	for i, s := range r.Statuses {
		from, bytes := len(r.Strings), values[i*c.Width:(i+1)*c.Width]
		for _, f := range c.Fields {
			if s != record.OK {
				break
			}
			if f.Type == PositionType && random.IntN(3) == 0 {
				continue // null
			}
			if f.isVariable() {
				n := random.IntN(40) * random.IntN(2)
				if f.Type == PositionsType {
					n = n / 10 * positionBytes
				}
				binary.LittleEndian.PutUint32(bytes[f.At:], uint32(n))
				r.Strings = append(r.Strings, randomBytes(n, random)...)
			} else {
				copy(bytes[f.At:], randomBytes(f.bytes(), random))
			}
		}
		if c.binaries() > 0 {
			r.Spans[k] = append(r.Spans[k], Span{from, len(r.Strings)})
		}
	}
	r.Values = append(r.Values, values)
}

func randomBytes(n int, random *rand.Rand) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func BenchmarkAppend(b *testing.B) {
	for name, columns := range map[string][]Column{"crc32c": {crc32c}, "both": {crc32c, minhash}, "struct": {packed}, "fields": {all}, "text": {text}} {
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
