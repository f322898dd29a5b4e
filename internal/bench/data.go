package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

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
	size    int    // bytes of the largest batch
	least   int    // bytes of the smallest batch; slots have different sizes up to size
	pieces  bool   // the batches of all slots are one payload in pieces, in the order of the slots
	scratch []byte // buffer of size bytes in which payloads are generated
}

func newWords(m mix, size int) *words {
	return &words{mix: m, size: size, least: size, scratch: make([]byte, size)}
}

func (w *words) operators() []operator.Operator { return []operator.Operator{w.mix} }
func (w *words) bytes() int                     { return w.size }
func (w *words) payloads() int                  { return 1 }

// length returns the size of a slot's batches: the fractional part of a multiple of the golden ratio, scaled to the
// range of sizes. So the sizes of consecutive slots are evenly spread.
func (w *words) length(slot int) int {
	share := float64(golden*uint64(slot+1)) / (1 << 64)
	return w.least + int(share*float64(w.size-w.least))
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
	random(payload, of, off, anyByte)
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
		random(part, of, from+off, anyByte)
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
	ops    []operator.Operator
	count  int // number of documents in a batch
	total  int // their bytes
	ragged bool
	texts  []texts // by slot
}

// texts are the documents of a slot's batch.
type texts struct {
	seed   uint64
	memory []byte
	all    [][]byte // parts of memory
}

// documentBytes is the size of a document if all have the same size.
const documentBytes = 2 << 10

// newDocuments creates a load of at least two documents of about documentBytes each. Their sizes add up to total bytes.
func newDocuments(ops []operator.Operator, total int, ragged bool) *documents {
	return &documents{ops: ops, count: max(total/documentBytes, 2), total: total, ragged: ragged}
}

func (d *documents) operators() []operator.Operator { return d.ops }
func (d *documents) bytes() int                     { return d.total }
func (d *documents) payloads() int                  { return d.count }

// Document fills dst with document i of a seed: random ASCII. Each document can be recreated without the others.
func Document(dst []byte, seed uint64, i int) { random(dst, derive(seed, i), 0, asciiMask) }

// fill implements load. It generates the documents of a slot and a seed once. After that, several goroutines may fill
// batches of different slots.
func (d *documents) fill(b *streams.Batch, seed uint64) error {
	for len(d.texts) <= b.Slot() {
		d.texts = append(d.texts, texts{})
	}
	t := &d.texts[b.Slot()]
	if t.seed != seed || t.all == nil {
		d.generate(t, seed, b.Slot())
	}
	for _, payload := range t.all {
		if err := appendTo(b, payload); err != nil {
			return err
		}
	}
	return nil
}

// generate replaces the documents of a slot. It reuses their memory, so that no garbage is collected during a
// measurement.
func (d *documents) generate(t *texts, seed uint64, slot int) {
	if t.memory == nil {
		t.memory = make([]byte, d.total)
	}
	t.seed, t.all = seed, t.all[:0]
	seed = derive(seed, slot)
	sizes := uniformSizes(d.count, d.total)
	if d.ragged {
		sizes = raggedSizes(d.count, d.total, seed)
	}
	rest := t.memory
	for i, size := range sizes {
		Document(rest[:size], seed, i)
		t.all, rest = append(t.all, rest[:size]), rest[size:]
	}
}

// verify checks sampleDocuments documents of a batch, of at most sampleBytes in total, in addition to the first and the
// last. References process one byte at a time.
const (
	sampleDocuments = 8
	sampleBytes     = 64 << 10
)

func (d *documents) verify(b *streams.Batch, seed uint64) error {
	all, checked := d.texts[b.Slot()].all, 0
	for n, i := range sample(len(all), sampleDocuments, derive(seed, b.Slot())) {
		if n >= 2 && checked+len(all[i]) > sampleBytes {
			continue
		}
		checked += len(all[i])
		for o, op := range d.ops {
			want, got := op.AppendReference(nil, all[i]), b.Results(o)
			at := i * op.Stride()
			if at+len(want) > len(got) {
				return fmt.Errorf("%s over %d payloads gave %d bytes, want %d", op, len(all), len(got), len(all)*op.Stride())
			}
			if err := equal(op, at, got[at:at+len(want)], want); err != nil {
				return fmt.Errorf("payload %d of %d: %w", i, len(all), err)
			}
		}
	}
	return nil
}

// sample returns at most limit numbers from 0 to n-1: the last, the first, and random ones in between.
func sample(n, limit int, seed uint64) []int {
	chosen := []int{n - 1, 0}[:min(n, 2)]
	for i := len(chosen); i < min(n, limit); i++ {
		chosen = append(chosen, 1+int(derive(seed, i)%uint64(n-2)))
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

// sameResults checks that several cases have the same results in a round. The reference checks only a sample of them.
type sameResults struct {
	first   string // the case that is measured first in the round
	seed    uint64 // seed of the round
	results []byte // results of first
}

// check compares the results of all batches with those of the first case, byte by byte.
func (s *sameResults) check(name string, seed uint64, batches []*streams.Batch) error {
	var results []byte
	for _, b := range batches {
		results = append(results, b.Results(0)...)
	}
	if s.results == nil || s.seed != seed {
		s.first, s.seed, s.results = name, seed, results
	}
	if !bytes.Equal(results, s.results) {
		return errWrong{fmt.Errorf("WRONG RESULT: %s differs from %s over the same bytes", name, s.first)}
	}
	return nil
}

// golden is 2^64 divided by the golden ratio. Steps of this size visit all 64-bit numbers.
const golden = 0x9e3779b97f4a7c15

// hash64 is the output function of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, 2014): close inputs give unrelated outputs.
func hash64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// derive returns the n-th seed derived from seed.
func derive(seed uint64, n int) uint64 { return hash64(seed + golden*uint64(n+1)) }

// Masks for random: every byte, and ASCII.
const (
	anyByte   = ^uint64(0)
	asciiMask = 0x7f7f7f7f7f7f7f7f
)

// random fills dst with the bytes of seed's infinite random sequence from offset off, a multiple of 8, and-ed with
// mask. Any section can be recreated without the others, so nothing has to be kept for checks.
func random(dst []byte, seed uint64, off int, mask uint64) {
	n := uint64(off / 8)
	for ; len(dst) >= 8; dst, n = dst[8:], n+1 {
		binary.LittleEndian.PutUint64(dst, hash64(seed+golden*n)&mask)
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], hash64(seed+golden*n)&mask)
	copy(dst, last[:])
}

// uniformSizes returns n sizes that differ by at most one byte and add up to total.
func uniformSizes(n, total int) []int {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1
	}
	return divide(total, shares)
}

// raggedSizes returns n sizes (n is at least 2) that add up to total. They are log-normal with a sigma of 1, except for
// one size at a random place, which is 100 times their median.
func raggedSizes(n, total int, seed uint64) []int {
	const sigma, longest = 1.0, 100.0
	r := rand.New(rand.NewPCG(seed, golden))
	shares := make([]float64, n) // relative to the median
	for i := range shares {
		shares[i] = math.Exp(sigma * r.NormFloat64())
	}
	shares[r.IntN(n)] = longest
	return divide(total, shares)
}

// divide divides total in proportion to shares.
func divide(total int, shares []float64) []int {
	sum, at, before := 0.0, 0.0, 0
	for _, x := range shares {
		sum += x
	}
	sizes := make([]int, len(shares))
	for i, x := range shares {
		at += x
		end := int(math.Round(at / sum * float64(total)))
		sizes[i], before = end-before, end
	}
	return sizes
}

// minhashSpec is minhash with the parameters that all figures use.
const minhashSpec = "minhash?k=24&hashes=128"

// Specs formats operators as in a report and a header.
func Specs(ops []operator.Operator) string {
	var list []string
	for _, op := range ops {
		list = append(list, op.String())
	}
	return strings.Join(list, ",")
}

// Parse parses a list of operators that is fixed in a suite's source. It panics if the list is invalid.
func Parse(list string) []operator.Operator {
	ops, err := operator.ParseList(list)
	if err != nil {
		panic("bench: " + err.Error())
	}
	return ops
}
