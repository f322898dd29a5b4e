package operator

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"millrace/internal/corpus"
)

func signature(t *testing.T, spec string, payload []byte) []uint32 {
	t.Helper()
	op, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	record := op.AppendReference(nil, payload)
	if len(record) != op.Stride() {
		t.Fatalf("%s: a record of %d bytes, want %d", spec, len(record), op.Stride())
	}
	entries := make([]uint32, len(record)/4)
	for i := range entries {
		entries[i] = binary.LittleEndian.Uint32(record[4*i:])
	}
	return entries
}

// TestMinhashKnownSignatures: a separate program in another language computed the signatures with arbitrary-precision
// numbers. It was written only from the specification.
func TestMinhashKnownSignatures(t *testing.T) {
	for _, v := range []struct {
		spec, payload string
		want          []uint32
	}{
		{"minhash?k=4&hashes=2", "123456789", []uint32{194990712, 1669869904}},
		{"minhash?hashes=4", "123456789", []uint32{2946682314, 907076811, 188977449, 2773471517}},
		{"minhash?hashes=4", "the quick brown fox jumps over the lazy dog", []uint32{273050735, 81258668, 764301366, 650260878}},
		{"minhash?k=3&hashes=5&seed=42", "größer als die 水車, 🌊 naïve", []uint32{50374077, 442898289, 184782318, 82562250, 129576716}},
		{"minhash?k=2&hashes=3&seed=18446744073709551615", strings.Repeat("\x80\x80a\xc3\xff\xbf", 9), []uint32{127092980, 705107625, 2133947141}},
		{"minhash?k=256&hashes=2&seed=7", strings.Repeat("🌊", 300), []uint32{1111359262, 4264211508}},
	} {
		if got := signature(t, v.spec, []byte(v.payload)); !slices.Equal(got, v.want) {
			t.Errorf("%s of %q: %v, want %v", v.spec, v.payload, got, v.want)
		}
	}
}

func TestMinhashOfNothing(t *testing.T) {
	for i, entry := range signature(t, "minhash", nil) {
		if entry != math.MaxUint32 {
			t.Errorf("entry %d is %d, want %d", i, entry, uint32(math.MaxUint32))
		}
	}
}

func TestMinhashReferenceAgainstSlow(t *testing.T) {
	sets := slices.Concat(
		corpus.Lengths(1, 40), corpus.TextLengths(2, 60), corpus.InvalidUTF8(3)[:20],
		[][]byte{corpus.Text(4, 300)})
	for _, spec := range []string{
		"minhash?k=1&hashes=1&seed=0", "minhash?k=2&hashes=3&seed=5", "minhash?k=24&hashes=7", "minhash?k=256&hashes=2",
	} {
		for _, payload := range sets {
			var k, hashes int
			var seed uint64 = 1
			if _, err := fmt.Sscanf(spec+"&seed=1", "minhash?k=%d&hashes=%d&seed=%d", &k, &hashes, &seed); err != nil {
				t.Fatal(err)
			}
			got, want := signature(t, spec, payload), slowMinhash(payload, k, hashes, seed)
			if !slices.Equal(got, want) {
				t.Fatalf("%s of %q: %v, want %v", spec, payload, got, want)
			}
		}
	}
}

// slowMinhash implements the specification literally, with big integers and strings.
func slowMinhash(payload []byte, k, hashes int, seed uint64) []uint32 {
	var characters []string
	for i, b := range payload {
		if i == 0 || b>>6 != 0b10 {
			characters = append(characters, "")
		}
		characters[len(characters)-1] += string(payload[i : i+1])
	}
	set := make(map[string]bool)
	if n := len(characters); n > 0 && n < k {
		set[string(payload)] = true
	}
	for i := 0; i+k <= len(characters); i++ {
		set[strings.Join(characters[i:i+k], "")] = true
	}
	random := splitmix64(seed)
	entries := make([]uint32, hashes)
	for i := range entries {
		a := random.next()%(1<<61-2) + 1
		b := random.next() % (1<<61 - 1)
		entries[i] = math.MaxUint32
		for shingle := range set {
			entries[i] = min(entries[i], uint32(slowPermuted(a, b, slowMurmur3([]byte(shingle), 0))))
		}
	}
	return entries
}

// TestMinhashEstimatesSimilarity: the share of equal entries must approximate the share of common shingles, which is
// the operator's purpose.
func TestMinhashEstimatesSimilarity(t *testing.T) {
	const spec = "minhash?k=5&hashes=1024"
	left := corpus.Bytes(1, 4000)
	for i := range left {
		left[i] &= 0x7F
	}
	right := slices.Clone(left)
	copy(right[3000:], corpus.Text(2, 1000)) // three quarters in common, so the similarity is 3/5
	equal := 0
	a, b := signature(t, spec, left), signature(t, spec, right)
	for i := range a {
		if a[i] == b[i] {
			equal++
		}
	}
	// The standard deviation is sqrt(0.6*0.4/1024) = 0.015. Repeated words in the second text shrink its set slightly.
	if got := float64(equal) / 1024; got < 0.53 || got > 0.75 {
		t.Errorf("estimated similarity %.3f, want about 0.6", got)
	}
}
