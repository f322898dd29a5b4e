package quality

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// document returns a text of words in lines and paragraphs. Its words are made of the letters of an alphabet.
func document(random *rand.Rand, size int, alphabet string) []byte {
	letters := strings.Split(alphabet, "")
	var b bytes.Buffer
	for b.Len() < size {
		if random.IntN(5) == 0 {
			b.WriteString(CommonWords[random.IntN(len(CommonWords))])
		} else {
			for range 2 + random.IntN(8) {
				b.WriteString(letters[random.IntN(len(letters))])
			}
		}
		switch n := random.IntN(100); {
		case n < 1:
			b.WriteString(".\n\n")
		case n < 4:
			b.WriteString(".\n")
		case n < 12:
			b.WriteString(", ")
		case n < 20:
			b.WriteString(". ")
		default:
			b.WriteByte(' ')
		}
	}
	return bytes.ToValidUTF8(b.Bytes()[:size], nil)
}

func BenchmarkCount(b *testing.B) {
	const english, accents, chinese = "etaoinshrdlucmfwypvbgkjqxzETAOIN", "etaoinshrdlucéèüñ’", "今天天气很好我们去公园"
	for _, bm := range []struct {
		name, alphabet string
		size           int
		hasNGrams      bool
	}{
		{"ASCII2KiB", english, 2 << 10, false}, {"ASCII200B", english, 200, false}, {"ASCII1MiB", english, 1 << 20, false},
		{"Accents2KiB", accents, 2 << 10, false}, {"Chinese2KiB", chinese, 2 << 10, false},
		{"NGrams2KiB", english, 2 << 10, true}, {"NGrams1MiB", english, 1 << 20, true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			random := rand.New(rand.NewPCG(1, 2))
			documents := make([][]byte, max(1, 1<<20/bm.size))
			for i := range documents {
				documents[i] = document(random, bm.size, bm.alphabet)
			}
			memory := make([]byte, MemoryBytes(1, bm.size, bm.hasNGrams))
			b.SetBytes(int64(len(documents[0])))
			b.ReportAllocs()
			var c Counters
			for i := 0; b.Loop(); i++ {
				if text := documents[i%len(documents)]; !Count(&c, text, memory, bm.hasNGrams) {
					b.Fatal("a document isn't valid")
				}
			}
		})
	}
}
