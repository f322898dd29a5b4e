package quality

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestNGramsAgreeOnAllTextsOfTwoWords tries all sequences of two words up to a length at which duplicates of all n overlap.
func TestNGramsAgreeOnAllTextsOfTwoWords(t *testing.T) {
	texts := []string{""}
	for range 13 {
		var longer []string
		for _, text := range texts {
			agree(t, []byte(text))
			longer = append(longer, text+"a ", text+"bcd\n")
		}
		texts = longer
	}
}

// TestNGramsAgreeOnTextsOfFewWords compares texts whose words repeat so often that each n has duplicates.
func TestNGramsAgreeOnTextsOfFewWords(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	separators := []string{" ", "\n", "\n\n", "  ", "\u2003", "\u00a0 ", "\x1c"}
	for range 2000 {
		var text strings.Builder
		words := []string{"a", "aa", "ab", "é", "eé", "\u6c34\u8eca", "the", strings.Repeat("long", 20)}[:1+random.IntN(8)]
		for range random.IntN(150) {
			text.WriteString(words[random.IntN(len(words))])
			text.WriteString(separators[random.IntN(1+random.IntN(len(separators)))])
		}
		agree(t, []byte(text.String()))
	}
}

// hostileTexts are texts of many words that could make a table slow.
func hostileTexts(words int) map[string]string {
	random := rand.New(rand.NewPCG(5, 6))
	of := func(word func(i int) string) string {
		var text strings.Builder
		for i := range words {
			text.WriteString(word(i))
			text.WriteByte(' ')
		}
		return text.String()
	}
	different := of(func(i int) string { return fmt.Sprintf("%x", i) })
	return map[string]string{
		"equal":     of(func(int) string { return "a" }),
		"letters":   of(func(int) string { return string(rune('!' + random.IntN(94))) }),
		"bits":      of(func(int) string { return string(rune('0' + random.IntN(2))) }),
		"period":    of(func(i int) string { return string(rune('a' + i%26)) }),
		"different": different,
		"twice":     different[:len(different)/2] + different[:len(different)/2],
		"long":      of(func(i int) string { return strings.Repeat("x", 30) + fmt.Sprint(i%1000) }),
	}
}

// TestHostileTextsTakeLinearTime: the time is proportional to the number of words and of collisions in tables.
func TestHostileTextsTakeLinearTime(t *testing.T) {
	const words, maxCollisions = 50_000, 1 // collisions per word and table; at most 0.5 are expected, because half of a full table is empty
	for name, text := range hostileTexts(words) {
		t.Run(name, func(t *testing.T) {
			agree(t, []byte(text))
			g := newNGrams(len(text), make([]byte, MemoryBytes(1, len(text), true)))
			start := 0
			for word := range strings.SplitSeq(strings.TrimSuffix(text, " "), " ") {
				g.add(start, start+len(word), uint32(utf8.RuneCountInString(word)))
				start += len(word) + 1
			}
			var c Counters
			g.count(&c, []byte(text))
			const tables = 3 + MaxNGram - MinNGram + 1
			if g.collisions > maxCollisions*tables*words {
				t.Errorf("%d collisions of %d words in %d tables", g.collisions, g.words, tables)
			}
			t.Logf("%d collisions of %d words", g.collisions, g.words)
		})
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, text := range hostileTexts(100_000) {
		b.Run(name, func(b *testing.B) {
			memory := make([]byte, MemoryBytes(1, len(text), true))
			b.SetBytes(int64(len(text)))
			var c Counters
			for b.Loop() {
				Count(&c, []byte(text), memory, true)
			}
		})
	}
}
