//go:build cgo

package userops

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/operator"
)

const simhash = "../../../examples/operators/simhash/simhash.cu"

// similar is the independent reference of simhash, with one counter per bit.
func similar(payload []byte, width int) uint64 {
	width = min(width, len(payload))
	var ones [64]int
	shingles := len(payload) - width + 1
	for i := range shingles {
		var eight [8]byte
		copy(eight[:], payload[i:i+width])
		// This is SplitMix64's first output for the shingle as the seed, with a state that width steps have advanced.
		z := binary.LittleEndian.Uint64(eight[:]) + uint64(width)*0x9e3779b97f4a7c15
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb
		for z ^= z >> 31; z != 0; z &= z - 1 {
			ones[bits.TrailingZeros64(z)]++
		}
	}
	var hash uint64
	for b, n := range ones {
		if 2*n > shingles {
			hash |= 1 << b
		}
	}
	return hash
}

func parseSimhash(t *testing.T, width int) operator.Operator {
	t.Helper()
	source, err := os.ReadFile(simhash)
	if err != nil {
		t.Fatal(err)
	}
	op, err := operator.Parse(fmt.Sprintf("simhash?width=%d", width), find(t, folderWith(t, "simhash", string(source), true))...)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func TestSimhashIsItsReference(t *testing.T) {
	for _, width := range []int{1, 4, 8} {
		op := parseSimhash(t, width)
		for _, record := range corpus.Adversarial(3) {
			if len(record) == 0 {
				continue
			}
			got := binary.LittleEndian.Uint64(op.AppendReference(nil, record))
			if want := similar(record, width); got != want {
				t.Fatalf("%v of %d bytes: %016x, want %016x", op, len(record), got, want)
			}
		}
	}
}

// TestSimhashFindsSimilarRecords: similar records have similar hashes, which is the operator's purpose.
func TestSimhashFindsSimilarRecords(t *testing.T) {
	op := parseSimhash(t, 8)
	hash := func(text string) uint64 { return binary.LittleEndian.Uint64(op.AppendReference(nil, []byte(text))) }
	for seed := range uint64(50) {
		text := string(corpus.Text(seed, 2000))
		edited := strings.Replace(text, "water", "wind", 1)
		if edited == text {
			t.Fatalf("text %d has no water", seed)
		}
		if d := bits.OnesCount64(hash(text) ^ hash(edited)); d > 12 {
			t.Errorf("an edit of text %d changes %d bits", seed, d)
		}
		if d := bits.OnesCount64(hash(text) ^ hash(string(corpus.Bytes(seed, 2000)))); d < 12 {
			t.Errorf("text %d and random bytes differ in %d bits", seed, d)
		}
	}
}
