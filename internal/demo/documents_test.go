package demo

import (
	"bytes"
	"slices"
	"testing"
)

func TestDocumentsAreTheSameEveryTime(t *testing.T) {
	a, b, other := newTexts(7, Frames{}, 0), newTexts(7, Frames{}, 0), newTexts(8, Frames{}, 0)
	document := func(t *texts, i int) []byte {
		_, records := t.appendMessage([]byte("x"), i)
		return records[0]
	}
	for i := range 100 {
		doc := document(a, i)
		if !bytes.Equal(doc, document(b, i)) {
			t.Fatalf("document %d differs between two sets of one seed", i)
		}
		if bytes.Equal(doc, document(other, i)) || bytes.Equal(doc, document(a, i+1)) {
			t.Fatalf("document %d is the same for another seed or number", i)
		}
	}
}

func TestSizesAreLogNormal(t *testing.T) {
	docs, buffer := newTexts(1, Frames{}, 0), []byte(nil)
	const n = 20000
	sizes := make([]int, n)
	for i := range sizes {
		buffer, _ = docs.appendMessage(buffer[:0], i)
		sizes[i] = len(buffer)
		if sizes[i] < MinDocument || sizes[i] > MaxDocument {
			t.Fatalf("document %d has %d bytes, outside %d to %d", i, sizes[i], MinDocument, MaxDocument)
		}
	}
	slices.Sort(sizes)
	if median := sizes[n/2]; median < MedianDocument*95/100 || median > MedianDocument*105/100 {
		t.Errorf("the median is %d bytes, want about %d", median, MedianDocument)
	}
	// One standard deviation above the median of a log-normal lies at the 84th percentile: e^1.3 = 3.67 times.
	if p84 := sizes[n*8413/10000]; p84 < MedianDocument*34/10 || p84 > MedianDocument*40/10 {
		t.Errorf("the 84th percentile is %d bytes, want about %d", p84, MedianDocument*367/100)
	}
}
