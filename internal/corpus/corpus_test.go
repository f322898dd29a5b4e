package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSetsNeverChange: the bytes of a set must never change, because results are compared between devices and over time.
func TestSetsNeverChange(t *testing.T) {
	hash := sha256.New()
	total := 0
	for _, set := range Sets(1) {
		rows, _ := Pack(set.Payloads)
		hash.Write(rows)
		total += len(rows)
	}
	const want = "85c1aa2d5cfc62560769585dadd9d4bef64396a4343fb43506d5f976f77c5fa3"
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		t.Errorf("the sets of seed 1 are %s, %d bytes, want %s", got, total, want)
	}
}

func TestSeedsDiffer(t *testing.T) {
	if bytes.Equal(Bytes(1, 100), Bytes(2, 100)) || bytes.Equal(Text(1, 100), Text(2, 100)) {
		t.Error("seeds 1 and 2 give the same bytes")
	}
}

// TestSetsHoldWhatTheyPromise: each set must match its name. Otherwise, the tests that use it have no effect.
func TestSetsHoldWhatTheyPromise(t *testing.T) {
	if n := len(Empties(8192)); n != 8192 {
		t.Errorf("%d empties", n)
	}
	for n, payload := range Lengths(3, 300) {
		if len(payload) != n {
			t.Errorf("payload %d has %d bytes", n, len(payload))
		}
	}
	for i, payload := range InvalidUTF8(3)[:19] {
		if utf8.Valid(payload) != (string(payload) == "\x00\x00\x00") {
			t.Errorf("mistake %d, %q, is valid UTF-8", i, payload)
		}
	}
	long, short := 0, 0
	for _, payload := range LongAmongShort(3, 1<<20, 512) {
		if len(payload) == 1<<20 {
			long++
		} else if len(payload) < 64 {
			short++
		}
	}
	if long != 1 || short != 512 {
		t.Errorf("%d long and %d short payloads", long, short)
	}
	if one := OneByte(); len(one) != 256 || len(one[255]) != 1 || one[255][0] != 255 {
		t.Errorf("%d payloads of one byte", len(one))
	}
	ends, lengths, end := make(map[int]bool), make(map[int]bool), 0
	for _, payload := range PageBoundaries(3) {
		end += len(payload)
		ends[end%4096], lengths[len(payload)] = true, true
	}
	for _, from := range []int{-1, 0, 1} {
		if !ends[(4096+from)%4096] || !lengths[4096+from] || !lengths[65536+from] {
			t.Errorf("no payload ends, or has a length, %d bytes from a page's end", from)
		}
	}
	widths := make(map[int]bool)
	for _, r := range string(Text(3, 5000)) {
		widths[utf8.RuneLen(r)] = true
	}
	for width := 1; width <= 4; width++ {
		if !widths[width] {
			t.Errorf("the text has no character of %d bytes", width)
		}
	}
}

func TestRepeatedWordsRepeatTenWords(t *testing.T) {
	repeated, long := 0, 0
	for _, payload := range RepeatedWords(3) {
		if !utf8.Valid(payload) {
			t.Errorf("%q isn't valid UTF-8", payload)
		}
		seen, words := map[string]bool{}, strings.Fields(string(payload))
		for i := 10; i <= len(words); i++ {
			ten := strings.Join(words[i-10:i], " ")
			if seen[ten] {
				repeated++
				break
			}
			seen[ten] = true
		}
		if len(payload) > 20<<10 {
			long++
		}
	}
	if repeated < 20 || long != 2 {
		t.Errorf("%d texts repeat ten words and %d are long, want 20 or more and 2", repeated, long)
	}
}

func TestAdversarialHasEverythingShort(t *testing.T) {
	empty, bytes := 0, 0
	for _, payload := range Adversarial(5) {
		if len(payload) == 0 {
			empty++
		}
		if len(payload) >= 1<<20 {
			t.Errorf("a payload of %d bytes", len(payload))
		}
		bytes += len(payload)
	}
	if empty < 8192 || bytes < 1<<20 || bytes > 4<<20 {
		t.Errorf("%d empty payloads and %d bytes", empty, bytes)
	}
}

func TestPack(t *testing.T) {
	rows, offsets := Pack([][]byte{[]byte("ab"), nil, []byte("c")})
	if string(rows) != "abc" {
		t.Errorf("rows are %q", rows)
	}
	want := []uint32{0, 2, 2, 3}
	if len(offsets) != len(want) {
		t.Fatalf("offsets are %v, want %v", offsets, want)
	}
	for i := range want {
		if offsets[i] != want[i] {
			t.Errorf("offsets are %v, want %v", offsets, want)
		}
	}
	if rows, offsets := Pack(nil); len(rows) != 0 || len(offsets) != 1 || offsets[0] != 0 {
		t.Errorf("no payloads are packed to %q and %v", rows, offsets)
	}
}

func TestAppendUTF8IsValid(t *testing.T) {
	v, cut := NewVocabulary(5), 0
	for size := range 400 {
		got, whole := v.AppendUTF8([]byte("x"), uint64(size), size)[1:], v.Append(nil, uint64(size), size)
		if !utf8.Valid(got) || len(got) != size {
			t.Fatalf("%d bytes: %q", size, got)
		}
		if bytes.Equal(got, whole) {
			continue
		}
		cut++
		if utf8.Valid(whole) || !bytes.HasPrefix(whole, bytes.TrimRight(got, " ")) {
			t.Fatalf("%q became %q", whole, got)
		}
	}
	if cut == 0 {
		t.Error("no character was cut off")
	}
}

// TestRecordsAreReproducible checks that a seed always gives the same record, and that another seed gives another record.
func TestRecordsAreReproducible(t *testing.T) {
	a, b := NewVocabulary(1), NewVocabulary(1)
	first := a.Append(nil, Seed(5, 0), 400)
	if got := b.Append([]byte("x"), Seed(5, 0), 100); !bytes.Equal(got[1:], first[:100]) {
		t.Errorf("the record is %q, want %q", got[1:], first[:100])
	}
	for _, other := range [][]byte{a.Append(nil, Seed(5, 1), 400), a.Append(nil, Seed(6, 0), 400), NewVocabulary(2).Append(nil, Seed(5, 0), 400)} {
		if bytes.Equal(first, other) {
			t.Errorf("another seed gives the same record %q", other)
		}
	}
}

func BenchmarkVocabulary(b *testing.B) {
	text := NewVocabulary(1)
	var record []byte
	b.SetBytes(256)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		record = text.Append(record[:0], Seed(1, i), 256)
	}
}
