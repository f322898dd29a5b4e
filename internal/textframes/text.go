// Package textframes makes frames of random text, which compresses about as well as English. The subcommands `worker bench nats` and
// `worker demo` send these frames, and make the records again to check the results.
//
// Start reading with Text for the records and Append for the frames.
package textframes

import (
	"math"
	"math/bits"
)

const (
	vocabularySize = 4096

	// drawBits determines how finely the frequencies of words are represented. The table of draws has 2^drawBits words.
	drawBits = 16

	// letters has the most frequent letters first.
	letters = "etaoinshrdlucmfwygpbvkxqjz"
)

// Text makes random text of lower-case words. The frequencies of words follow Zipf's law, and frequent words are short. Many
// goroutines may use it at the same time.
type Text struct{ draws [][]byte } // each word as often as its frequency demands

// NewText returns the text with the vocabulary of a seed.
func NewText(seed uint64) *Text {
	r := Random{seed}
	words := make([][]byte, vocabularySize)
	weights, sum := make([]float64, vocabularySize), 0.0
	for i := range words {
		for range 1 + bits.Len(uint(i))/2 + r.Below(4) {
			words[i] = append(words[i], letters[min(r.Below(len(letters)), r.Below(len(letters)))])
		}
		words[i] = append(words[i], ' ')
		weights[i] = math.Pow(float64(i+4), -1.1)
		sum += weights[i]
	}
	t := &Text{draws: make([][]byte, 0, 1<<drawBits)}
	reached := 0.0
	for i, weight := range weights {
		reached += weight
		for float64(len(t.draws)) < reached/sum*(1<<drawBits) && len(t.draws) < 1<<drawBits {
			t.draws = append(t.draws, words[i])
		}
	}
	for len(t.draws) < 1<<drawBits { // rounding
		t.draws = append(t.draws, words[0])
	}
	return t
}

// Append appends the record with that seed, of size bytes. The same seed gives the same bytes, and a longer record of the same seed
// starts with the shorter one. A record has no line break.
func (t *Text) Append(dst []byte, seed uint64, size int) []byte {
	r, end := Random{seed}, len(dst)+size
	for len(dst) < end {
		dst = append(dst, t.draws[r.Next()>>(64-drawBits)]...)
	}
	return dst[:end]
}

// Seed returns the seed of the i-th record of a set, for Text.Append.
func Seed(set uint64, i int) uint64 {
	r := Random{set ^ uint64(i+1)*0xd1342543de82ef95}
	return r.Next()
}
