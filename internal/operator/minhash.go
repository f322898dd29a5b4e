package operator

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"millrace/internal/device"
)

const minhashName = "minhash"

// noShingle is the signature entry of a payload without shingles. It is the largest uint32, so it is also the initial
// value of a minimum.
const noShingle = math.MaxUint32

var minhashParameters = []parameter{
	{name: "k", low: 1, high: 256, preset: 24},
	{name: "hashes", low: 1, high: 1024, preset: 128},
	{name: "seed", low: 0, high: math.MaxUint64, preset: 1},
}

// minhashConfig holds the parameters: the number of characters per shingle, the number of signature entries, and the
// seed of the generator for the permutations.
type minhashConfig struct {
	k, hashes int
	seed      uint64
}

// minhash is permuted MinHash over character shingles (Broder, "On the Resemblance and Containment of Documents",
// 1997). The share of equal entries in two signatures estimates the Jaccard similarity of the two payloads' sets of
// shingles.
//
// A character starts at byte 0 and at every byte that is not a UTF-8 continuation byte (10xxxxxx). Invalid UTF-8 is
// handled in the same way. A shingle is k consecutive characters. A payload with fewer characters is one shingle, and
// an empty payload has none. Entry i of the signature is the minimum, over all shingles, of the low 32 bits of
// permutation i of the shingle's murmur3 hash.
//
// If characters are very long (runs of continuation bytes), so are shingles, and each byte is hashed in up to k of
// them.
type minhash struct {
	minhashConfig
	spec         string
	permutations []permutation
}

func newMinhash(c minhashConfig) *minhash {
	return &minhash{
		minhashConfig: c,
		spec:          fmt.Sprintf("%s?k=%d&hashes=%d&seed=%d", minhashName, c.k, c.hashes, c.seed),
		permutations:  permutations(c.seed, c.hashes),
	}
}

func (m *minhash) Name() string   { return minhashName }
func (m *minhash) String() string { return m.spec }

func (m *minhash) Params() []byte {
	block := make([]byte, 0, minhashBlockBytes)
	block = binary.LittleEndian.AppendUint32(block, uint32(m.k))
	block = binary.LittleEndian.AppendUint32(block, uint32(m.hashes))
	return binary.LittleEndian.AppendUint64(block, m.seed)
}

func (m *minhash) Stride() int { return 4 * m.hashes }

func (m *minhash) Needs(s device.Shape) device.Needs {
	return minhashKernel{minhashConfig: m.minhashConfig, pieceUnits: minhashPieceUnits}.Needs(s)
}

func (m *minhash) AppendJSON(dst, record []byte) []byte {
	dst = append(dst, `{"k":`...)
	dst = strconv.AppendInt(dst, int64(m.k), 10)
	dst = append(dst, `,"seed":`...)
	dst = strconv.AppendUint(dst, m.seed, 10)
	dst = append(dst, `,"signature":[`...)
	for rest := fixed(record, m.Stride()); len(rest) > 0; rest = rest[4:] {
		dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(rest)), 10)
		dst = append(dst, ',')
	}
	dst[len(dst)-1] = ']' // hashes is at least 1, so there is a trailing comma
	return append(dst, '}')
}

// MostJSON returns an upper bound that counts ten digits and a comma for each entry.
func (m *minhash) MostJSON() int {
	const widest = `{"k":256,"seed":18446744073709551615,"signature":[]}`
	return len(widest) + m.hashes*len("4294967295,")
}

func (m *minhash) AppendReference(dst, payload []byte) []byte {
	all := shingles(payload, m.k)
	hashes := make([]uint32, 0, len(all))
	for _, shingle := range all {
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

// shingles returns the shingles of a payload, in order.
func shingles(payload []byte, k int) [][]byte {
	if len(payload) == 0 {
		return nil
	}
	bounds := make([]int, 0, len(payload)+1) // the start of each character, followed by the payload's end
	for i, b := range payload {
		if i == 0 || b&0xC0 != 0x80 {
			bounds = append(bounds, i)
		}
	}
	bounds = append(bounds, len(payload))
	if characters := len(bounds) - 1; characters < k {
		return [][]byte{payload}
	}
	windows := make([][]byte, 0, len(bounds)-k)
	for i := 0; i+k < len(bounds); i++ {
		windows = append(windows, payload[bounds[i]:bounds[i+k]])
	}
	return windows
}

// low32 returns the low 32 bits of p applied to hash. The product has at most 93 bits. If x = high*2^61 + low, then x
// is congruent to high + low modulo mersenne61, because 2^61 is congruent to 1. That sum is below twice the modulus.
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

// fixed returns record and panics if its length is not stride. A different length is a bug in the caller that must not
// go unnoticed.
func fixed(record []byte, stride int) []byte {
	if len(record) != stride {
		panic(fmt.Sprintf("operator: a record has %d bytes, want %d", len(record), stride))
	}
	return record
}
