package corpus

import (
	"bytes"
	"math"
	"slices"
)

// NearDuplicates generates documents. Some documents are edited copies of an earlier document. The same fields and the same index give the
// same document, so any document can be generated alone. Copies of copies form chains, and several copies of one document form stars.
type NearDuplicates struct {
	Seed  uint64
	Share float64 // share of copies among the documents, 0 to 1
	Least float64 // minimum intended Jaccard similarity of a copy and its source, 0 to 1

	// Text appends document i, which isn't a copy. The sizes of copies differ from those of their sources, because words are inserted
	// and deleted.
	Text func(dst []byte, i int) []byte
}

// TextsOf returns a function for Text that appends documents of size bytes.
func TextsOf(seed uint64, size int) func(dst []byte, i int) []byte {
	return func(dst []byte, i int) []byte { return common().AppendUTF8(dst, Seed(seed, i), size) }
}

const (
	// shinglesPerEdit is the approximate number of 24-character shingles that contain a part of one word.
	shinglesPerEdit = 29

	// starStep is the distance between documents that have more copies than others.
	starStep = 64
)

// Source returns the document from which document i was copied. ok is false if document i isn't a copy. similarity is the intended
// Jaccard similarity of their sets of 24-character shingles, from Least to 1. The true similarity is close to it.
func (d NearDuplicates) Source(i int) (source int, similarity float64, ok bool) {
	r := Random{Seed(d.Seed^0x6e656172, i)}
	if i == 0 || r.fraction() >= d.Share {
		return 0, 0, false
	}
	source = r.Below(i)
	if r.Below(4) == 0 {
		source -= source % starStep
	}
	return source, d.Least + (1-d.Least)*r.fraction(), true
}

// Append appends document i. It also generates the chain of documents from which document i was copied, which has at most about log(i)
// documents.
func (d NearDuplicates) Append(dst []byte, i int) []byte {
	source, similarity, ok := d.Source(i)
	if !ok {
		return d.Text(dst, i)
	}
	text := d.Append(nil, source)
	words := bytes.SplitAfter(text, []byte{' '})
	r := Random{Seed(d.Seed, i)}
	changed := float64(len(text)) * (1 - similarity) / (1 + similarity) // number of the source's shingles that the copy should lack
	for range int(math.Round(changed / shinglesPerEdit)) {
		at, word := r.Below(len(words)), common().draws[r.Next()>>(64-drawBits)]
		switch kind := r.Below(3); {
		case kind == 0 || len(words) == 1:
			words[at] = word
		case kind == 1:
			words = slices.Insert(words, at, word)
		default:
			words = slices.Delete(words, at, at+1)
		}
	}
	return append(dst, bytes.Join(words, nil)...)
}

// fraction returns a random number from 0 up to, but not including, 1.
func (r *Random) fraction() float64 { return float64(r.Next()>>11) / (1 << 53) }
