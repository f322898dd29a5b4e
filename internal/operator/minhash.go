package operator

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"millrace/internal/operator/compiled"
)

const minhashName = "minhash"

// minhashReference is the reference of the operator minhash: permuted MinHash over character shingles, as NeMo Curator's fuzzy
// deduplication computes it with cuDF. MinHash is from Broder, "On the Resemblance and Containment of Documents", 1997. The share
// of equal entries in two signatures estimates the Jaccard similarity of the two payloads' sets of shingles.
//
// A character starts at byte 0 and at every byte that is not a UTF-8 continuation byte (10xxxxxx), also in invalid UTF-8. A
// shingle is k consecutive characters. A payload with fewer than k characters is one shingle, and an empty payload has no
// shingle. The hash of a shingle is the maximum of 1 and its murmur3 hash. Entry i of the signature is the minimum, over all
// shingles, of permutation i of the shingle's hash. Without shingles, the entry is 0.
//
// Runs of continuation bytes make characters and shingles long. Each byte is hashed in up to k shingles.
type minhashReference struct{ *minhashParameters }

func newMinhashReference(d *compiled.Description, block []byte) minhashReference {
	p, err := minhashParametersOf(d, block)
	if err != nil {
		panic(err) // the block is from a bound operator
	}
	return minhashReference{p}
}

// append implements referenceFunc.
func (m minhashReference) append(dst, payload []byte) []byte {
	for _, entry := range m.signature(payload) {
		dst = binary.LittleEndian.AppendUint32(dst, entry)
	}
	return dst
}

func (m minhashReference) signature(payload []byte) []uint32 {
	signature := make([]uint32, len(m.a))
	if len(payload) > 0 {
		m.sign(signature, payload)
	}
	return signature
}

// hashBlock is the number of hashes for which lower is called once.
const hashBlock = 1024

// sign sets the signature of a payload with at least one shingle.
func (m minhashReference) sign(signature []uint32, payload []byte) {
	for i := range signature {
		signature[i] = math.MaxUint32
	}
	hashes := make([]uint32, 0, hashBlock)
	for shingle := range shingles(payload, m.k) {
		hashes = append(hashes, max(murmur3(shingle, m.seed), 1))
		if len(hashes) == hashBlock {
			m.lower(signature, hashes)
			hashes = hashes[:0]
		}
	}
	m.lower(signature, hashes)
}

// lower lowers each entry of a signature to the minimum of the permuted hashes. It computes four independent minima, of every fourth hash
// each, so the processor doesn't wait for one comparison before the next. A comparison with <= becomes a conditional move, unlike min.
func (m minhashReference) lower(signature, hashes []uint32) {
	for i, least := range signature {
		a, b := m.a[i], m.b[i]
		least0, least1, least2, least3 := least, least, least, least
		rest := hashes
		for ; len(rest) >= 4; rest = rest[4:] {
			if value := rest[0]*a + b; value <= least0 {
				least0 = value
			}
			if value := rest[1]*a + b; value <= least1 {
				least1 = value
			}
			if value := rest[2]*a + b; value <= least2 {
				least2 = value
			}
			if value := rest[3]*a + b; value <= least3 {
				least3 = value
			}
		}
		for _, hash := range rest {
			least0 = min(least0, hash*a+b)
		}
		signature[i] = min(least0, least1, least2, least3)
	}
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

// fixed returns record. It panics if the record's length is not stride, which is a bug in the caller.
func fixed(record []byte, stride int) []byte {
	if len(record) != stride {
		panic(fmt.Sprintf("operator: a record has %d bytes, want %d", len(record), stride))
	}
	return record
}
