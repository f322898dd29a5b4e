package operator

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator/neardup"
)

// TestNeardupKeysAreThoseOfMinhash: the kernel's results are the keys of minhash's signature with the same k and seed.
func TestNeardupKeysAreThoseOfMinhash(t *testing.T) {
	keys, signatures := parseKernel(t, "neardup?bands=6&rows=7&k=5&seed=9"), parse(t, "minhash?hashes=42&k=5&seed=9")
	p := neardup.Parameters{Bands: 6, Rows: 7}
	for _, payload := range append(corpus.TextLengths(3, 100), nil) {
		var want []byte
		for _, key := range p.AppendKeys(nil, signature(t, signatures.String(), payload)) {
			want = binary.LittleEndian.AppendUint64(want, key)
		}
		if got := keys.AppendReference(nil, payload); !bytes.Equal(got, want) {
			t.Errorf("%q: keys %x, want %x", payload, got, want)
		}
	}
}

func TestNeardupValues(t *testing.T) {
	op := parse(t, "neardup").(Stateful)
	if kernel := op.Kernel(); kernel.Stride() != 160 || kernel.Name() != op.Name() || kernel.String() != op.String() || !bytes.Equal(kernel.Params(), op.Params()) {
		t.Errorf("the kernel is %v with %d bytes for a record", kernel, kernel.Stride())
	}
	verdict := neardup.Verdict{
		DuplicateOf: neardup.Position{Sequence: 17, Record: 3}, Bands: 12, Also: []neardup.Position{{Sequence: 18}},
	}
	value := verdict.AppendValue(nil)
	for _, c := range []struct {
		value []byte
		want  string
	}{
		{make([]byte, 24), `{"bytes":9,"neardup":{"duplicate_of":null}}`},
		{value, `{"bytes":9,"neardup":{"duplicate_of":{"sequence":17,"record":3},"bands":12,"also":[{"sequence":18,"record":0}]}}`},
	} {
		if got := string(JSON.Append(nil, []Operator{op}, 9, [][]byte{c.value})); got != c.want {
			t.Errorf("%x: %s, want %s", c.value, got, c.want)
		}
	}
}

// TestMaxBoundsNeardup compares the bounds with the longest value.
func TestMaxBoundsNeardup(t *testing.T) {
	for _, spec := range []string{"neardup", "neardup?bands=1", "neardup?bands=64"} {
		op := parse(t, spec).(*nearDuplicates)
		last := neardup.Position{Sequence: math.MaxUint64, Record: math.MaxUint64}
		verdict := neardup.Verdict{DuplicateOf: last, Bands: op.bands, Also: slices.Repeat([]neardup.Position{last}, op.bands-1)}
		value := verdict.AppendValue(nil)
		strings := StringBytes([]Operator{op}, 1, 1<<20)
		if len(value) != op.Stride()+strings {
			t.Errorf("%s: the longest value has %d bytes, want %d and %d", spec, len(value), op.Stride(), strings)
		}
		for _, f := range []Format{JSON, Binary, Arrow} {
			slack := 32
			if f == Arrow {
				slack += 3000 // the bound ignores the packing of the metadata
			}
			if n, limit := len(f.Append(nil, []Operator{op}, math.MaxInt64, [][]byte{value})), f.MaxBytes([]Operator{op}, strings); n > limit || limit > n+slack {
				t.Errorf("%s as %v: %d bytes, and the maximum is %d", spec, f, n, limit)
			}
		}
	}
}
