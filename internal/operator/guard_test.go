//go:build linux

package operator

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
)

// TestMinhashStaysInsideItsMemory: every variant reads rows, and writes signatures and scratch, that end at an inaccessible page. C code
// has no bounds checks, so only a page fault reveals an access beyond the end.
func TestMinhashStaysInsideItsMemory(t *testing.T) {
	sets := map[string][][]byte{"characters": corpus.TextLengths(61, 150), "one byte each": nil, "long characters": corpus.LongCharacters(62)}
	for n := range 200 {
		sets["one byte each"] = append(sets["one byte each"], asciiText(uint64(n), n))
	}
	for _, spec := range []string{"minhash?k=1&hashes=1", "minhash?k=22&hashes=17", "minhash?k=23&hashes=15", "minhash?k=24&hashes=16", "minhash?k=25&hashes=3"} {
		op := parse(t, spec)
		for name, set := range sets {
			for variant, kernel := range variants(t, op) {
				t.Run(spec+"/"+name+"/"+variant, func(t *testing.T) {
					for i := range set {
						compare(t, op, set[i:i+1], computeAtPageEnd(t, kernel, set[i:i+1]), reference(op, set[i:i+1]))
					}
				})
			}
		}
	}
}

// computeAtPageEnd runs k on a batch in memory that ends at inaccessible pages, and returns the result.
func computeAtPageEnd(t *testing.T, k device.BoundHostKernel, set [][]byte) []byte {
	t.Helper()
	rows, offsets := corpus.Pack(set)
	needs := k.Needs(shapeOf(set))
	guarded, result := atPageEnd(t, len(rows)), atPageEnd(t, needs.Result)
	copy(guarded, rows)
	if err := k.Run(guarded, offsets, atPageEnd(t, needs.Scratch), result, inOrder); err != nil {
		t.Fatal(err)
	}
	return result
}

// TestMinhashStaysInsideItsPart: the scratch of a part of a row ends where the part ends, and the coefficients end after their padding.
func TestMinhashStaysInsideItsPart(t *testing.T) {
	const low, high = 100, 400
	text := asciiText(63, 1000)
	for _, hashes := range []int{1, 15, 16, 17, 100, 128, 129, 1023} {
		op := parse(t, fmt.Sprintf("minhash?hashes=%d", hashes))
		want := op.AppendReference(nil, text[low:high+23]) // the shingles of 24 characters that start in the part
		p := bind(t, op).(minhashKernel).minhashParameters
		a, b := numbersAtPageEnd(t, p.a), numbersAtPageEnd(t, p.b)
		for _, v := range minhashVariants {
			record, scratch := atPageEnd(t, op.Stride()), numbersAtPageEnd(t, make([]uint32, high-low))
			v.Sign(record, text, low, high, p.k, a, b, scratch)
			if !bytes.Equal(record, want) {
				t.Errorf("%d hashes with %s: %x, want %x", hashes, v.Name, record, want)
			}
		}
	}
}

// numbersAtPageEnd returns a copy of numbers with its capacity, before an inaccessible page.
func numbersAtPageEnd(t *testing.T, numbers []uint32) []uint32 {
	t.Helper()
	memory, err := asUint32(atPageEnd(t, 4*cap(numbers)))
	if err != nil {
		t.Fatal(err)
	}
	return append(memory[:0], numbers...)
}

// atPageEnd returns n bytes of memory before an inaccessible page.
func atPageEnd(t *testing.T, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(memory); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mprotect(memory[size:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return memory[size-n : size : size]
}
