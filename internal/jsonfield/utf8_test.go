package jsonfield

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestIsUTF8 compares isUTF8 with utf8.Valid. It tests each character, and each text of up to four bytes from both ends of the ranges that
// UTF-8 distinguishes. It places each text at each position in a word.
func TestIsUTF8(t *testing.T) {
	ends := []byte{
		0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
	}
	around := bytes.Repeat([]byte("a"), 24)
	valid := 0
	check := func(text []byte, at int) {
		t.Helper()
		whole := append(append(append([]byte{}, around[:at]...), text...), around[:16-at]...)
		want := utf8.Valid(whole)
		if got := isUTF8(whole); got != want {
			t.Fatalf("%x at position %d is valid: %v, want %v", text, at, got, want)
		}
		if want {
			valid++
		}
		if cut := whole[:at+len(text)]; isUTF8(cut) != utf8.Valid(cut) {
			t.Fatalf("%x at position %d, at the end of the text, is valid: %v", text, at, isUTF8(cut))
		}
	}
	var texts func(prefix []byte)
	texts = func(prefix []byte) {
		check(prefix, len(prefix)*3%8)
		if len(prefix) == 4 {
			return
		}
		for _, b := range ends {
			texts(append(prefix[:len(prefix):len(prefix)], b))
		}
	}
	texts(nil)
	for r := rune(0); r <= utf8.MaxRune; r += 1 + r/0x800*7 {
		for at := range 8 {
			check(utf8.AppendRune(nil, r), at)
		}
	}
	if valid < 1000 {
		t.Errorf("only %d texts were valid", valid)
	}
}

// BenchmarkIsUTF8 compares isUTF8 with utf8.Valid. The texts differ, so that the branch predictor can't learn them.
func BenchmarkIsUTF8(b *testing.B) {
	for name, words := range map[string]string{
		"quotes":  "He said “this is a long English sentence with few others” and then he went on for a long time.",
		"French":  "La théorie de l'évolution a été développée par les naturalistes.",
		"Russian": "мельница вода и камень река", "Chinese": "水車 石臼方式 ， 方",
	} {
		random := rand.New(rand.NewPCG(1, 2))
		texts := make([][]byte, 256)
		for i := range texts {
			for len(texts[i]) < 2000 {
				some := strings.Fields(words)
				texts[i] = append(append(texts[i], some[random.IntN(len(some))]...), ' ')
			}
		}
		for way, valid := range map[string]func([]byte) bool{"automaton": isUTF8, "utf8.Valid": utf8.Valid} {
			b.Run(name+"/"+way, func(b *testing.B) {
				b.SetBytes(2000)
				for i := 0; b.Loop(); i++ {
					if !valid(texts[i%len(texts)]) {
						b.Fatal("the text isn't valid")
					}
				}
			})
		}
	}
}
