package demo

import (
	"bytes"
	"slices"
	"testing"
)

func TestDocumentsAreTheSameEveryTime(t *testing.T) {
	a, b, other := NewDocuments(7), NewDocuments(7), NewDocuments(8)
	for i := range 100 {
		doc := a.Append(nil, i)
		if !bytes.Equal(doc, b.Append([]byte("x"), i)[1:]) {
			t.Fatalf("document %d differs between two sets of one seed", i)
		}
		if bytes.Equal(doc, other.Append(nil, i)) || bytes.Equal(doc, a.Append(nil, i+1)) {
			t.Fatalf("document %d is the same for another seed or number", i)
		}
	}
}

func TestSizesAreLogNormal(t *testing.T) {
	docs := NewDocuments(1)
	const n = 20000
	sizes := make([]int, n)
	for i := range sizes {
		r := docs.generator(i)
		sizes[i] = drawSize(&r)
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
	r := docs.generator(3)
	if got, drawn := len(docs.Append(nil, 3)), drawSize(&r); got != drawn {
		t.Errorf("document 3 has %d bytes, and %d were drawn", got, drawn)
	}
}
