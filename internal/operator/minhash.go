package operator

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"

	"millrace/internal/operator/compiled"
)

const minhashName = "minhash"

// noShingle is the signature entry of a payload without shingles. As the largest uint32, it is also the initial value
// of a minimum.
const noShingle = math.MaxUint32

// minhashParameters holds the number of characters per shingle, the number of signature entries, and the seed of the
// generator for the permutations.
type minhashParameters struct {
	k, hashes int
	seed      uint64
}

// minhashConfigOf returns the parameters in a block, or an error if the block isn't valid.
func minhashConfigOf(d *compiled.Description, block []byte) (minhashParameters, error) {
	o, err := d.BindBlock(block)
	if err != nil {
		return minhashParameters{}, err
	}
	return minhashParameters{k: int(o.Value(0)), hashes: int(o.Value(1)), seed: uint64(o.Value(2))}, nil
}

// minhashReference is the reference of the operator minhash: permuted MinHash over character shingles (Broder, "On the
// Resemblance and Containment of Documents", 1997). The share of equal entries in two signatures estimates the Jaccard
// similarity of the two payloads' sets of shingles.
//
// A character starts at byte 0 and at every byte that is not a UTF-8 continuation byte (10xxxxxx), also in invalid
// UTF-8. A shingle is k consecutive characters. A payload with fewer characters is one shingle, and an empty payload
// has no shingle. Entry i of the signature is the minimum, over all shingles, of the low 32 bits of permutation i of
// the shingle's murmur3 hash.
//
// Runs of continuation bytes make characters and shingles long. Each byte is hashed in up to k shingles.
type minhashReference struct {
	k            int
	permutations []permutation
}

func newMinhashReference(d *compiled.Description, block []byte) *minhashReference {
	c, err := minhashConfigOf(d, block)
	if err != nil {
		panic(err) // the block is from a bound operator
	}
	return &minhashReference{c.k, permutations(c.seed, c.hashes)}
}

// append implements referenceFunc.
func (m *minhashReference) append(dst, payload []byte) []byte {
	hashes := make([]uint32, 0, len(payload))
	for shingle := range shingles(payload, m.k) {
		hashes = append(hashes, murmur3(shingle, 0))
	}
	for _, p := range m.permutations {
		entry := uint32(noShingle)
		for _, hash := range hashes {
			entry = min(entry, p.low32(hash))
		}
		dst = binary.LittleEndian.AppendUint32(dst, entry)
	}
	return dst
}

// shingles iterates over the shingles of a payload, in order.
func shingles(payload []byte, k int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		starts := make([]int, k) // starts of the last k characters; character c is at c%k
		characters := 0
		for i, b := range payload {
			if i > 0 && b&0xC0 == 0x80 {
				continue
			}
			if characters >= k && !yield(payload[starts[characters%k]:i]) {
				return
			}
			starts[characters%k] = i
			characters++
		}
		switch {
		case characters >= k:
			yield(payload[starts[characters%k]:])
		case characters > 0:
			yield(payload)
		}
	}
}

// low32 returns the low 32 bits of p applied to hash. The product has at most 93 bits. If x = high*2^61 + low, then x
// is congruent to high + low modulo mersenne61, because 2^61 is congruent to 1. high + low is below twice the modulus.
func (p permutation) low32(hash uint32) uint32 {
	upper, lower := bits.Mul64(p.a, uint64(hash))
	lower, carry := bits.Add64(lower, p.b, 0)
	upper, _ = bits.Add64(upper, 0, carry)
	sum := (upper<<3 | lower>>61) + lower&mersenne61
	if sum >= mersenne61 {
		sum -= mersenne61
	}
	return uint32(sum)
}

// fixed returns record. It panics if the record's length is not stride, which is a bug in the caller.
func fixed(record []byte, stride int) []byte {
	if len(record) != stride {
		panic(fmt.Sprintf("operator: a record has %d bytes, want %d", len(record), stride))
	}
	return record
}
