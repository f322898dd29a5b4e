package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"

	"millrace/internal/operator"
	"millrace/internal/streams"
)

// load generates the payloads of a case's batches from a seed. Each slot and each round has different payloads. A load
// also checks the results against the operators' references. Cases with the same load share the payloads of a round.
type load struct {
	operators []operator.Operator
	size      int // bytes of the largest batch
	min       int // bytes of the smallest batch; slots have different sizes up to size
	count     int // payloads in a batch

	mask uint64 // bits that may be set in the random data

	// parts returns the sizes of the parts of a batch of total bytes. verify checks a sample of the parts. If count is
	// not 1, the parts are the payloads.
	parts func(total int, seed uint64) []int
	pitch func(op operator.Operator) int // distance between the results of successive parts, in bytes
	whole *load                          // load whose batch is divided among the slots of this load; may be nil
	slots []content
}

// content holds the payloads of one slot's batch.
type content struct {
	seed   uint64
	memory []byte
	parts  [][]byte // slices of memory
}

// stretchBytes is the size of each part of a batch that consists of one payload.
const stretchBytes = 256

// newWords creates a load for the operator mix. Each batch has one payload of random bytes.
func newWords(m mix, size int) *load {
	return &load{
		operators: []operator.Operator{m}, size: size, min: size, count: 1, mask: ^uint64(0),
		parts: func(total int, _ uint64) (sizes []int) {
			for ; total > 0; total -= stretchBytes {
				sizes = append(sizes, min(total, stretchBytes))
			}
			return sizes
		},
		pitch: func(operator.Operator) int { return stretchBytes }, // a result has as many bytes as the batch
	}
}

// documentBytes is the mean size of documents.
const documentBytes = 2 << 10

// newDocuments creates a load for the worker's operators. A batch consists of at least two documents, which have total
// bytes together. Documents are random ASCII, so every byte starts a shingle, which is the maximum work for minhash.
// With ragged, the sizes differ as in raggedSizes.
func newDocuments(ops []operator.Operator, total int, ragged bool) *load {
	n := max(total/documentBytes, 2)
	l := &load{operators: ops, size: total, min: total, count: n, mask: asciiMask, pitch: operator.Operator.Stride}
	l.parts = func(total int, _ uint64) []int { return uniformSizes(n, total) }
	if ragged {
		l.parts = func(total int, seed uint64) []int { return raggedSizes(n, total, seed) }
	}
	return l
}

// length returns the size of a slot's batch. The sizes of the slots are spread evenly between min and size.
func (l *load) length(slot int) int {
	return l.min + (l.size-l.min)*int(bits.Reverse8(uint8(slot)))/256
}

// content returns the content of the slot's batch. The first call for a slot and a seed generates the content, and must
// not run at the same time as another call. After that, several goroutines may call content for the same seed.
func (l *load) content(slot int, seed uint64) *content {
	for len(l.slots) <= slot {
		l.slots = append(l.slots, content{})
	}
	c := &l.slots[slot]
	if c.seed == seed && len(c.parts) > 0 {
		return c
	}
	of := derive(seed, slot)
	switch {
	case l.whole != nil:
		c.memory = l.whole.content(0, seed).memory[slot*l.size:][:l.size]
	case c.memory == nil:
		c.memory = make([]byte, l.length(slot)) // rounds share the memory, which avoids garbage collection during a measurement
		fallthrough
	default:
		random(c.memory, of, l.mask)
	}
	c.seed, c.parts = seed, c.parts[:0]
	rest := c.memory
	for _, size := range l.parts(len(c.memory), of) {
		c.parts, rest = append(c.parts, rest[:size]), rest[size:]
	}
	return c
}

// fill appends the payloads for the batch's slot, derived from seed, to an empty batch.
func (l *load) fill(b *streams.Batch, seed uint64) error {
	c := l.content(b.Slot(), seed)
	if l.count == 1 {
		return appendTo(b, c.memory)
	}
	for _, payload := range c.parts {
		if err := appendTo(b, payload); err != nil {
			return err
		}
	}
	return nil
}

func appendTo(b *streams.Batch, payload []byte) error {
	if !b.Append(payload) {
		return fmt.Errorf("a payload of %d bytes does not fit a batch that has %d", len(payload), b.Bytes())
	}
	return nil
}

// verify checks at most sampleParts parts of a batch. It always checks the first and the last part, and skips others if
// the total would exceed sampleBytes. References are slow: they process one byte or word at a time, and a word may have
// thousands of rounds.
const (
	sampleParts = 16
	sampleBytes = 64 << 10
)

// verify compares a sample of a completed batch's results with the reference. The error contains the position of the
// first difference. Several goroutines may verify different batches at once.
func (l *load) verify(b *streams.Batch, seed uint64) error {
	parts, checked := l.content(b.Slot(), seed).parts, 0
	for n, i := range sample(len(parts), sampleParts, seed) {
		if n >= 2 && checked+len(parts[i]) > sampleBytes {
			continue
		}
		checked += len(parts[i])
		for o, op := range l.operators {
			want, got, at := op.AppendReference(nil, parts[i]), b.Results(o), i*l.pitch(op)
			if at+len(want) > len(got) {
				return fmt.Errorf("%s gave %d bytes, want %d or more", op, len(got), at+len(want))
			}
			if err := equal(op, at, got[at:at+len(want)], want); err != nil {
				return fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
			}
			if err := equalRefusal(op, b, o, i, parts[i]); err != nil {
				return fmt.Errorf("part %d of %d: %w", i+1, len(parts), err)
			}
		}
	}
	return nil
}

// equalRefusal checks that the operator with index o refuses row i only if its reference refuses the payload.
func equalRefusal(op operator.Operator, b *streams.Batch, o, i int, payload []byte) error {
	r, ok := op.(operator.ReferenceRefuser)
	if !ok {
		return nil
	}
	got, want := r.Refusal(b.Results(o), b.Rows(), i), r.ReferenceRefusal(payload)
	if got == want {
		return nil
	}
	return errWrong{fmt.Errorf("WRONG RESULT: %s refuses a payload with the reason %q, want %q: "+
		"do not use this device or this kernel library before the cause is known", op, got, want)}
}

// sample returns at most limit numbers from 0 to n-1: the last, the first, and random numbers in between.
func sample(n, limit int, seed uint64) []int {
	chosen := []int{n - 1, 0}[:min(n, 2)]
	for i := len(chosen); i < min(n, limit); i++ {
		chosen = append(chosen, 1+int(derive(seed, i)%uint64(n-2)))
	}
	return chosen
}

// errWrong is the error for a result that differs from the reference.
type errWrong struct{ error }

// equal returns an error with the first position where got differs from the reference want, or nil. got starts at byte
// off of op's results.
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

// sameResults checks that several cases have the same results in a round. It compares all results, whereas load.verify
// checks only a sample.
type sameResults struct {
	first   string // name of the case that is measured first in the round
	seed    uint64 // seed of the round
	results []byte // results of first
}

// check compares the first operator's results of all batches with the first case's results, byte by byte. If the case is
// the first of the round, check stores its results. name is the name of the case, and seed is the seed of the round.
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

// derive returns the n-th seed derived from seed.
func derive(seed uint64, n int) uint64 { return rand.NewPCG(seed, uint64(n)).Uint64() }

// asciiMask clears the top bit of every byte.
const asciiMask = 0x7f7f7f7f7f7f7f7f

// random fills dst with random bytes and clears the bits that are not in mask, which applies to 8 bytes at a time.
func random(dst []byte, seed, mask uint64) {
	r := rand.NewPCG(seed, 0)
	for ; len(dst) >= 8; dst = dst[8:] {
		binary.LittleEndian.PutUint64(dst, r.Uint64()&mask)
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], r.Uint64()&mask)
	copy(dst, last[:])
}

// Document fills dst with document i of a seed. Documents are random ASCII and don't depend on each other.
func Document(dst []byte, seed uint64, i int) { random(dst, derive(seed, i), asciiMask) }

// uniformSizes returns n sizes that differ by at most one byte and add up to total.
func uniformSizes(n, total int) []int {
	shares := make([]float64, n)
	for i := range shares {
		shares[i] = 1
	}
	return divide(total, shares)
}

// raggedSizes returns n sizes that add up to total. n must be at least 2. The sizes are log-normal with a sigma of 1,
// except one at a random position. That size is 100 times the median.
func raggedSizes(n, total int, seed uint64) []int {
	const sigma, longest = 1.0, 100.0
	r := rand.New(rand.NewPCG(seed, 0))
	shares := make([]float64, n) // shares relative to the median
	for i := range shares {
		shares[i] = math.Exp(sigma * r.NormFloat64())
	}
	shares[r.IntN(n)] = longest
	return divide(total, shares)
}

// divide returns sizes that add up to total. Except for rounding, they are in proportion to shares.
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

// Specs formats operators as a list for reports and headers.
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
