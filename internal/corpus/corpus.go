// Package corpus generates random text and bytes for the demo, for benchmarks and for tests. Its sets of payloads
// reveal bugs in the handling of ragged batches, UTF-8 boundaries and split rows. The same seed gives the same bytes on
// every machine and with every Go version, so another device can reproduce a failure.
//
// Packages demo, devkit and textframes, and many tests, use it. Start reading with Vocabulary for the text and Sets for the payloads.
package corpus

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
	"unicode/utf8"
)

// Random is the generator splitmix64 (Steele, Lea, Flood, 2014). It can start at any state.
type Random struct{ State uint64 }

// Next returns 64 random bits.
func (r *Random) Next() uint64 {
	r.State += 0x9e3779b97f4a7c15
	z := r.State
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a random number from 0 to n-1.
func (r *Random) Below(n int) int {
	hi, _ := bits.Mul64(r.Next(), uint64(n))
	return int(hi)
}

// Seed returns the seed of record i of a set of records, for Vocabulary.Append. set is the seed of the whole set.
func Seed(set uint64, i int) uint64 {
	r := Random{set ^ uint64(i+1)*0xd1342543de82ef95}
	return r.Next()
}

// Bytes returns n random bytes.
func Bytes(seed uint64, n int) []byte {
	r, b := Random{seed}, make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Next())
	}
	return b[:n:n]
}

// Text returns n bytes of random text. All calls use one vocabulary.
func Text(seed uint64, n int) []byte { return common().Append(make([]byte, 0, n), seed, n)[:n:n] }

var common = sync.OnceValue(func() *Vocabulary { return NewVocabulary(1) })

const (
	vocabularySize = 4096

	// drawBits determines the precision of the words' frequencies. The table of draws has 2^drawBits words.
	drawBits = 16

	// letters holds the letters in descending order of their frequency.
	letters = "etaoinshrdlucmfwygpbvkxqjz"
)

// frequent lists the most frequent words of every vocabulary. Several scripts provide characters of 1 to 4 bytes.
var frequent = []string{
	"the", "mill", "turns", "while", "water", "lasts", "a", "of", "stone", "grain",
	"größer", "où", "naïve", "мельница", "вода", "水車", "石臼", "방앗간", "طاحونة", "🌊", "🌾🌾",
}

// Vocabulary makes random text that compresses about as well as English. The frequencies of words follow Zipf's law,
// and frequent words are short. A Vocabulary is safe for concurrent use.
type Vocabulary struct{ draws [][]byte } // the words, each repeated in proportion to its frequency

// NewVocabulary returns the vocabulary that is generated from seed.
func NewVocabulary(seed uint64) *Vocabulary {
	r := Random{seed}
	words := make([][]byte, vocabularySize)
	weights, sum := make([]float64, vocabularySize), 0.0
	for i := range words {
		if i < len(frequent) {
			words[i] = []byte(frequent[i])
		} else {
			for range 1 + bits.Len(uint(i))/2 + r.Below(4) {
				words[i] = append(words[i], letters[min(r.Below(len(letters)), r.Below(len(letters)))])
			}
		}
		words[i] = append(words[i], ' ')
		weights[i] = math.Pow(float64(i+4), -1.1)
		sum += weights[i]
	}
	v := &Vocabulary{draws: make([][]byte, 0, 1<<drawBits)}
	reached := 0.0
	for i, weight := range weights {
		reached += weight
		for float64(len(v.draws)) < reached/sum*(1<<drawBits) && len(v.draws) < 1<<drawBits {
			v.draws = append(v.draws, words[i])
		}
	}
	for len(v.draws) < 1<<drawBits { // rounding may leave entries empty
		v.draws = append(v.draws, words[0])
	}
	return v
}

// Append appends the record of size bytes that is generated from seed. The same seed gives the same bytes. A longer record starts
// with the bytes of a shorter record. A record has no line break, and its last character may be cut off.
func (v *Vocabulary) Append(dst []byte, seed uint64, size int) []byte {
	r, end := Random{seed}, len(dst)+size
	for len(dst) < end {
		dst = append(dst, v.draws[r.Next()>>(64-drawBits)]...)
	}
	return dst[:end]
}

// AppendUTF8 is like Append, but the record is valid UTF-8. If the last character would be cut off, spaces replace it.
func (v *Vocabulary) AppendUTF8(dst []byte, seed uint64, size int) []byte {
	start := len(dst)
	dst = v.Append(dst, seed, size)
	last := len(dst)
	for last > start && !utf8.RuneStart(dst[last-1]) {
		last--
	}
	if last = max(last-1, start); !utf8.Valid(dst[last:]) {
		for i := last; i < len(dst); i++ {
			dst[i] = ' '
		}
	}
	return dst
}
