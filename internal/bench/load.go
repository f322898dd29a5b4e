package bench

import (
	"bytes"
	"fmt"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// load fills batches with payloads derived from a seed, fresh for every batch and every round. It checks the results
// against the operators' references.
type load interface {
	// fill appends the payloads for the batch's slot, derived from seed, to an empty batch.
	fill(b *streams.Batch, seed uint64) error
	// verify compares a sample of a completed batch's results with the reference. The sample includes the first and
	// the last result. The error says where they differ. Several batches may be verified at once.
	verify(b *streams.Batch, seed uint64) error
	// operators returns the operators for which verify checks the results.
	operators() []operator.Operator
	// bytes and payloads bound a batch.
	bytes() int
	payloads() int
}

// words is a load for the operator mix: batches of one payload.
type words struct {
	mix
	size    int                // bytes of the largest batch
	sizeOf  func(slot int) int // bytes of a slot's batches, at most size; nil: size
	pieces  bool               // the batches of all slots are one payload in pieces, in the order of the slots
	scratch []byte             // buffer of size bytes in which payloads are generated
}

func newWords(m mix, size int) *words { return &words{mix: m, size: size, scratch: make([]byte, size)} }

func (w *words) operators() []operator.Operator { return []operator.Operator{w.mix} }
func (w *words) bytes() int                     { return w.size }
func (w *words) payloads() int                  { return 1 }

func (w *words) length(slot int) int {
	if w.sizeOf == nil {
		return w.size
	}
	return w.sizeOf(slot)
}

// source returns the random sequence of a slot's batch, and the offset at which the batch begins in it.
func (w *words) source(slot int, seed uint64) (of uint64, off int) {
	if w.pieces {
		return seed, slot * w.size
	}
	return derive(seed, slot), 0
}

func (w *words) fill(b *streams.Batch, seed uint64) error {
	payload := w.scratch[:w.length(b.Slot())]
	of, off := w.source(b.Slot(), seed)
	random(payload, of, off, ^uint64(0))
	return appendTo(b, payload)
}

func appendTo(b *streams.Batch, payload []byte) error {
	if !b.Append(payload) {
		return fmt.Errorf("a payload of %d bytes does not fit a batch that has %d", len(payload), b.Bytes())
	}
	return nil
}

// For a batch of words, verify checks sampleStretches stretches of stretchBytes. The reference computes a word's rounds
// one after another, and there may be thousands.
const (
	sampleStretches = 16
	stretchBytes    = 256
)

func (w *words) verify(b *streams.Batch, seed uint64) error {
	length := w.length(b.Slot())
	got := b.Results(0)
	if want := roundUp(length, wordBytes); len(got) != want {
		return fmt.Errorf("%s over %d bytes gave %d bytes, want %d", w.mix, length, len(got), want)
	}
	of, from := w.source(b.Slot(), seed)
	payload := make([]byte, stretchBytes)
	for _, stretch := range sample(roundUp(length, stretchBytes)/stretchBytes, sampleStretches, seed) {
		off := stretch * stretchBytes
		part := payload[:min(stretchBytes, length-off)]
		random(part, of, from+off, ^uint64(0))
		want := w.AppendReference(nil, part)
		if err := equal(w.mix, off, got[off:off+len(want)], want); err != nil {
			return err
		}
	}
	return nil
}

// documents is a load for the worker's operators: many payloads of ASCII. Every byte is a character and so starts a
// shingle, which is the maximum work for minhash.
type documents struct {
	ops     []operator.Operator
	sizes   func(seed uint64) []int // sizes of the documents in a batch, by seed; their number and their sum are always the same
	count   int
	total   int
	scratch []byte
}

// documentBytes is the size of a document if all have the same size.
const documentBytes = 2 << 10

// newDocuments creates a load of at least two documents of about documentBytes each. Their sizes add up to total bytes.
func newDocuments(ops []operator.Operator, total int, ragged bool) *documents {
	n := max(total/documentBytes, 2)
	d := &documents{ops: ops, count: n, total: total, scratch: make([]byte, total)}
	d.sizes = func(uint64) []int { return uniformSizes(n, total) }
	if ragged {
		d.sizes = func(seed uint64) []int { return raggedSizes(n, total, seed) }
	}
	return d
}

func (d *documents) operators() []operator.Operator { return d.ops }
func (d *documents) bytes() int                     { return d.total }
func (d *documents) payloads() int                  { return d.count }

// Document fills dst with document i of a seed: random ASCII. Each document can be recreated without the others.
func Document(dst []byte, seed uint64, i int) { random(dst, derive(seed, i), 0, asciiMask) }

func (d *documents) fill(b *streams.Batch, seed uint64) error {
	seed = derive(seed, b.Slot())
	for i, size := range d.sizes(seed) {
		payload := d.scratch[:size]
		Document(payload, seed, i)
		if err := appendTo(b, payload); err != nil {
			return err
		}
	}
	return nil
}

// verify checks sampleDocuments documents of a batch, of at most sampleBytes in total, in addition to the first and the
// last. References process one byte at a time.
const (
	sampleDocuments = 8
	sampleBytes     = 64 << 10
)

func (d *documents) verify(b *streams.Batch, seed uint64) error {
	seed = derive(seed, b.Slot())
	sizes := d.sizes(seed)
	checked := 0
	for n, i := range sample(len(sizes), sampleDocuments, seed) {
		if n >= 2 && checked+sizes[i] > sampleBytes {
			continue
		}
		checked += sizes[i]
		payload := make([]byte, sizes[i])
		Document(payload, seed, i)
		for o, op := range d.ops {
			want := op.AppendReference(nil, payload)
			at := i * op.Stride()
			if at+len(want) > len(b.Results(o)) {
				return fmt.Errorf("%s over %d payloads gave %d bytes, want %d", op, len(sizes), len(b.Results(o)), len(sizes)*op.Stride())
			}
			if err := equal(op, at, b.Results(o)[at:at+len(want)], want); err != nil {
				return fmt.Errorf("payload %d of %d: %w", i, len(sizes), err)
			}
		}
	}
	return nil
}

// sample returns at most limit different numbers from 0 to n-1: the first, the last, and random ones.
func sample(n, limit int, seed uint64) []int {
	chosen := []int{n - 1, 0}[:min(n, 2)]
	for i := 1; len(chosen) < min(n, limit); i++ {
		stratum := len(chosen) - 2 // one number from each of this many equal parts of the rest
		parts := min(n, limit) - 2
		low, high := 1+stratum*(n-2)/parts, 1+(stratum+1)*(n-2)/parts
		chosen = append(chosen, low+int(derive(seed, i)%uint64(high-low)))
	}
	return chosen
}

// errWrong is a result that differs from the reference.
type errWrong struct{ error }

// equal returns an error with the first position at which got differs from the reference. got begins at byte off of
// op's results.
func equal(op operator.Operator, off int, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return errWrong{fmt.Errorf("WRONG RESULT: %s differs from the reference at byte %d of its results: "+
		"do not use this device or this kernel library before the cause is known", op, off+at)}
}
