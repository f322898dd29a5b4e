// Package demo runs a complete workload on one machine. A producer publishes documents to JetStream at full speed. The
// checker, a separate client, reads the results back and compares each with the Go reference.
//
// The subcommand "worker demo" uses the package. Start reading with demo.go.
package demo

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace/internal/corpus"
	"millrace/internal/frame"
)

// These constants define the distribution of document sizes, in bytes. The distribution is log-normal, like the sizes
// of texts on the web.
const (
	MinDocument    = 200
	MedianDocument = 2 << 10
	MaxDocument    = 1 << 20
	sigma          = 1.3
)

// texts generates the texts of messages. Text n of a seed is always the same, so the checker can regenerate messages instead of keeping
// them. Without a framing, a message is one document, and documents have very different sizes. With a framing, a message has many texts of
// similar sizes.
type texts struct {
	Frames
	text func(dst []byte, n int) []byte // appends text n; message i has the texts from i*Records on
}

// newTexts returns the texts of a seed. The share near of them are near-duplicates of earlier ones.
func newTexts(seed uint64, f Frames, near float64) *texts {
	f, vocabulary := f.withDefaults(), corpus.NewVocabulary(seed)
	text := func(dst []byte, n int) []byte {
		seed := corpus.Seed(corpus.Seed(seed, n/f.Records), n%f.Records)
		return vocabulary.AppendUTF8(dst, seed, f.size(rand.New(rand.NewPCG(seed, 0))))
	}
	if near > 0 {
		text = corpus.NearDuplicates{Seed: seed, Share: near, Least: leastSimilarity, Text: text}.Append
	}
	return &texts{f, text}
}

// appendMessage appends the texts of message i to buffer. It returns the extended buffer and the texts in it.
func (t *texts) appendMessage(buffer []byte, i int) ([]byte, [][]byte) {
	ends, start := make([]int, t.Records), len(buffer)
	for r := range ends {
		buffer = t.text(buffer, i*t.Records+r)
		ends[r] = len(buffer)
	}
	records := make([][]byte, t.Records)
	for r, end := range ends {
		records[r], start = buffer[start:end], end
	}
	return buffer, records
}

// size draws the size of a text in bytes.
func (f Frames) size(r *rand.Rand) int {
	if f.Framing != frame.None {
		return r.IntN(2*f.RecordBytes + 1)
	}
	return int(min(max(MedianDocument*math.Exp(sigma*r.NormFloat64()), MinDocument), MaxDocument))
}

// CheckShare returns an error if a share of near-duplicates is out of range.
func CheckShare(share float64) error {
	if !(share >= 0 && share <= 0.95) {
		return fmt.Errorf("--near-duplicates is %v, want 0 to 0.95", share)
	}
	return nil
}

// leastSimilarity is the approximate minimum similarity of a near-duplicate to its source. The operator finds nearly all such pairs.
const leastSimilarity = 0.9
