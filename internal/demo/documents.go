// Package demo runs a complete workload on one machine. A producer publishes documents to JetStream at full speed. The
// checker, a separate client, reads the results back and compares each with the Go reference.
//
// The subcommand "worker demo" uses the package. Start reading with demo.go.
package demo

import (
	"math"

	"millrace/internal/corpus"
)

// These constants define the distribution of document sizes, in bytes. The distribution is log-normal, like the sizes
// of texts on the web.
const (
	MinDocument    = 200
	MedianDocument = 2 << 10
	MaxDocument    = 1 << 20
	sigma          = 1.3
)

// Documents is a set of generated texts. Document i of a seed is always the same, so the checker can regenerate
// documents instead of keeping them.
type Documents struct {
	seed       uint64
	vocabulary *corpus.Vocabulary
}

// NewDocuments returns the set that is generated from seed.
func NewDocuments(seed uint64) *Documents {
	return &Documents{seed: seed, vocabulary: corpus.NewVocabulary(seed)}
}

// Append appends document i to dst.
func (d *Documents) Append(dst []byte, i int) []byte {
	r := d.generator(i)
	size := drawSize(&r)
	return d.vocabulary.AppendUTF8(dst, r.Next(), size)
}

func (d *Documents) records() int { return 1 }

// text implements texts.
func (d *Documents) text(dst []byte, n int) []byte { return d.Append(dst, n) }

// generator returns the random generator for document i. Its first numbers determine the document's size.
func (d *Documents) generator(i int) corpus.Random {
	return corpus.Random{State: d.seed ^ uint64(i+1)*0x9e3779b97f4a7c15}
}

// unit returns a number in (0, 1].
func unit(r *corpus.Random) float64 { return float64(r.Next()>>11+1) / (1 << 53) }

// drawSize draws a document's size in bytes.
func drawSize(r *corpus.Random) int {
	normal := math.Sqrt(-2*math.Log(unit(r))) * math.Cos(2*math.Pi*unit(r)) // Box and Muller, 1958
	return int(min(max(MedianDocument*math.Exp(sigma*normal), MinDocument), MaxDocument))
}
