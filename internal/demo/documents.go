// Package demo runs the whole job on one machine. A producer publishes documents to JetStream at full speed. A second
// client outside the worker reads the results back and checks each against the Go reference.
//
// The subcommand "worker demo" uses it. Start reading with demo.go.
package demo

import (
	"fmt"
	"math"
	"math/bits"

	"millrace/internal/operator"
)

// Bounds and shape of the distribution of document sizes, in bytes. It is log-normal, like the sizes of texts on the
// web.
const (
	MinDocument    = 200
	MedianDocument = 2 << 10
	MaxDocument    = 1 << 20
	sigma          = 1.3
)

// Documents is a set of generated texts. For a given seed, document i is always the same, so the checker can regenerate
// the documents instead of keeping them.
type Documents struct {
	seed  uint64
	words [][]byte
}

// NewDocuments returns the set for seed.
func NewDocuments(seed uint64) *Documents {
	return &Documents{seed: seed, words: vocabulary(seed)}
}

// vocabularySize is the number of different words.
const vocabularySize = 4096

// letters are the characters that words are made of: one, two or three bytes each in UTF-8.
var letters = []rune("eeeeeetttttaaaaooooiiiinnnnsssshhhrrrddlluucmwfgypbvkjxqzäöüßéñçøåžлитера書語文")

func vocabulary(seed uint64) [][]byte {
	r := random{seed}
	words := make([][]byte, vocabularySize)
	for i := range words {
		var word []rune
		for range 2 + r.below(9) {
			word = append(word, letters[r.below(len(letters))])
		}
		words[i] = append([]byte(string(word)), ' ')
	}
	return words
}

// Append appends document i to dst.
func (d *Documents) Append(dst []byte, i int) []byte {
	r := d.generator(i)
	size := r.size()
	end := len(dst) + size
	for len(dst) < end {
		dst = append(dst, d.words[r.below(len(d.words))]...)
	}
	return dst[:end] // the last character may be cut off; operators accept any bytes
}

func (d *Documents) records() int { return 1 }

// check implements source.
func (d *Documents) check(buffer []byte, i int, ops []operator.Operator, format operator.Format, parts []part) ([]byte, error) {
	buffer = d.Append(buffer[:0], i)
	if len(parts) != 1 {
		return buffer, fmt.Errorf("the result has %d parts, want 1", len(parts))
	}
	return buffer, format.Check(ops, buffer, parts[0].body)
}

// generator returns the random numbers for document i; the first ones determine its size.
func (d *Documents) generator(i int) random {
	return random{d.seed ^ uint64(i+1)*0x9e3779b97f4a7c15}
}

// random is splitmix64 (Steele, Lea, Flood, 2014), a generator that can start at any state.
type random struct{ state uint64 }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number from 0 to n-1.
func (r *random) below(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// unit returns a number in (0, 1].
func (r *random) unit() float64 { return float64(r.next()>>11+1) / (1 << 53) }

// size draws a document's size in bytes.
func (r *random) size() int {
	normal := math.Sqrt(-2*math.Log(r.unit())) * math.Cos(2*math.Pi*r.unit()) // Box and Muller, 1958
	return int(min(max(MedianDocument*math.Exp(sigma*normal), MinDocument), MaxDocument))
}
