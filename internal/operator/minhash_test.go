package operator

import (
	"bytes"
	"encoding/binary"
	"fmt"
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

// TestMinhashKnownSignatures uses signatures from a separate Python program, which was written only from the definition.
func TestMinhashKnownSignatures(t *testing.T) {
	const fox = "The quick brown fox jumps over the lazy dog"
	for _, v := range []struct {
		spec, payload string
		want          []uint32
	}{
		{"minhash?hashes=4", "", []uint32{0, 0, 0, 0}},
		{"minhash?hashes=4", "A test string", []uint32{1790905119, 3497716082, 1003032707, 2602246136}},
		{"minhash?hashes=4", fox, []uint32{288489571, 231969616, 175714076, 264915830}},
		{"minhash?hashes=4", strings.Repeat("x", 2048), []uint32{2871524267, 2085577270, 1549578079, 679660604}},
		{"minhash?k=4&hashes=2", "123456789", []uint32{529274414, 833389941}},
		{"minhash?hashes=4", "123456789", []uint32{1430824297, 1505483328, 4152020837, 4166279430}},
		{"minhash?k=3&hashes=5&seed=7", "größer als die 水車, 🌊 naïve", []uint32{16962932, 153966796, 319815103, 598174663, 280589827}},
		{"minhash?k=2&hashes=3&seed=4294967295", strings.Repeat("\x80\x80a\xc3\xff\xbf", 9), []uint32{227660110, 588217654, 32672359}},
		{"minhash?k=256&hashes=2&seed=7", strings.Repeat("🌊", 300), []uint32{1623868516, 248817314}},
	} {
		if got := signature(t, v.spec, []byte(v.payload)); !slices.Equal(got, v.want) {
			t.Errorf("%s of %q: %v, want %v", v.spec, v.payload, got, v.want)
		}
	}
	for payload, want := range map[string]uint32{"A test string": 4232484689, fox: 379167841} {
		if got := signature(t, "minhash?hashes=260", []byte(payload))[259]; got != want {
			t.Errorf("entry 259 of %q: %d, want %d", payload, got, want)
		}
	}
}

// TestMinhashMatchesCuDF uses the signatures in cuDF's own tests (python/cudf/cudf/tests, Apache-2.0). These signatures have other
// coefficients, and a seed that isn't a coefficient.
func TestMinhashMatchesCuDF(t *testing.T) {
	small := minhashReference{&minhashParameters{k: 4, a: []uint32{10, 11, 12}, b: []uint32{10, 11, 12}}}
	large := minhashReference{&minhashParameters{k: 4, a: []uint32{20, 21, 22}, b: []uint32{20, 21, 22}}}
	for _, v := range []struct {
		reference minhashReference
		payload   string
		want      []uint32
	}{
		{small, "doc 1", []uint32{1392101586, 394869177, 811528444}},
		{small, "this is doc 2", []uint32{211415830, 187088503, 130291444}},
		{small, "d", []uint32{2264583304, 2920538364, 3576493424}},
		{small, "The quick brown fox jumpéd over the lazy brown dog.", []uint32{253327882, 41747273, 302030804}},
		{small, "line ten", []uint32{547084870, 1748895564, 656501844}},
		{large, strings.Repeat("x", 2048), []uint32{1731998032, 315359380, 3193688024}},
	} {
		want, err := binary.Append(nil, binary.LittleEndian, v.want)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.reference.append(nil, []byte(v.payload)); !bytes.Equal(got, want) {
			t.Errorf("%q: %x, want %x", v.payload, got, want)
		}
	}
}

// TestHashOfZeroCountsAsOne checks that minhash replaces a hash of 0 by 1. With the first factor of seed 621, the murmur3 hash of word is 0.
func TestHashOfZeroCountsAsOne(t *testing.T) {
	const word = "ku~y"
	a, b := coefficients(621, 4)
	if hash := murmur3([]byte(word), a[0]); hash != 0 {
		t.Fatalf("the hash of %q is %d, want 0", word, hash)
	}
	for i, entry := range signature(t, "minhash?k=4&hashes=4&seed=621", []byte(word)) {
		if want := a[i] + b[i]; entry != want {
			t.Errorf("entry %d is %d, want %d", i, entry, want)
		}
	}
	set := [][]byte{[]byte(word), []byte(strings.Repeat(word, 100))}
	op := parse(t, "minhash?k=4&hashes=33&seed=621")
	for name, kernel := range variants(t, op) {
		t.Run(name, func(t *testing.T) { compare(t, op, set, compute(t, kernel, set, inOrder), reference(op, set)) })
	}
}

func TestMinhashReferenceAgainstSlow(t *testing.T) {
	sets := slices.Concat(
		corpus.Lengths(1, 40), corpus.TextLengths(2, 60), corpus.InvalidUTF8(3)[:20],
		[][]byte{corpus.Text(4, 300)})
	for _, p := range []struct {
		k, hashes int
		seed      uint32
	}{{1, 1, 0}, {2, 3, 5}, {24, 7, 42}, {256, 2, 42}} {
		spec := fmt.Sprintf("minhash?k=%d&hashes=%d&seed=%d", p.k, p.hashes, p.seed)
		for _, payload := range sets {
			got, want := signature(t, spec, payload), slowMinhash(payload, p.k, p.hashes, p.seed)
			if !slices.Equal(got, want) {
				t.Fatalf("%s of %q: %v, want %v", spec, payload, got, want)
			}
		}
	}
}

// slowMinhash implements the definition literally, with strings and 64-bit arithmetic.
func slowMinhash(payload []byte, k, hashes int, seed uint32) []uint32 {
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
	a, b := coefficients(seed, hashes)
	entries := make([]uint32, hashes)
	for i := range entries {
		var values []uint32
		for shingle := range set {
			hash := max(uint64(slowMurmur3([]byte(shingle), a[0])), 1)
			values = append(values, uint32((hash*uint64(a[i])+uint64(b[i]))%(1<<32)))
		}
		if len(values) > 0 {
			entries[i] = slices.Min(values)
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

// FuzzMinhash compares every variant of the host kernel with the reference. The text is split into two rows, and the rows are split
// into pieces.
func FuzzMinhash(f *testing.F) {
	f.Add([]byte("The quick brown fox jumps over the lazy dog"), uint16(10), uint8(4), uint8(20), uint16(7))
	f.Add([]byte(strings.Repeat("größer 水車 plain text 🌊", 20)), uint16(100), uint8(24), uint8(128), uint16(300))
	f.Add(slices.Concat(asciiText(1, 400), []byte{0x80}, asciiText(2, 400)), uint16(3), uint8(0), uint8(17), uint16(1000))
	f.Fuzz(func(t *testing.T, text []byte, cut uint16, k, hashes uint8, pieceUnits uint16) {
		text = text[:min(len(text), 4<<10)]
		at := int(cut) % (len(text) + 1)
		set := [][]byte{text[:at], text[at:]}
		op := parse(t, fmt.Sprintf("minhash?k=%d&hashes=%d&seed=9", int(k)+1, int(hashes)+1))
		want := reference(op, set)
		for _, kernel := range variants(t, op) {
			compare(t, op, set, compute(t, cutAt(kernel, int(pieceUnits)+1), set, inOrder), want)
		}
	})
}
