// Package neardup decides for each record of a stream whether it is a near-duplicate of an earlier one.
//
// # The rule
//
// A record's MinHash signature is cut into bands of rows. Each band gives a 64-bit key. Two records are candidates if they share a key. An
// index maps each key to a label, which is the position of an earlier record. For each record, in the order of the stream:
//
//  1. Look up the record's keys. Each key that is present is a hit, and the lookup returns its label.
//  2. The record's label is the least label of its hits, or its own position if it has no hit.
//  3. Insert the keys that were absent, with the record's label. The label of a key never changes.
//
// The verdict on a record with hits is its label, the number of hits, and the other labels of the hits.
//
// # Generations
//
// The index has two generations, of Parameters.Records records each. Record number i of all records with a verdict belongs to generation
// i/Records. When the first record of a new generation arrives, the old generation is dropped and the young one becomes the old one. Keys
// are looked up in both. A key that is found only in the old generation is copied to the young one with its label. A key therefore
// survives as long as new records contain it.
//
// A generation can carry Records labels over from the old one. Each record uses one of them for each different label of its copied keys.
// When no label is left, the copied keys of a record get the record's label instead of their own. Both labels are positions in the same
// group of duplicates. This happens only if the average record copies keys of more than one label.
//
// # Keys
//
// All arithmetic is modulo 2^64. The key of band b (from 0) with the values v[0] to v[rows-1] is
//
//	h = b + 1
//	for i = 0, 2, 4, ... below rows:
//	    h = h XOR (v[i] + v[i+1] * 2^32)         v[rows] is 0
//	    h = (h XOR h >> 30) * 0xBF58476D1CE4E5B9
//	    h = (h XOR h >> 27) * 0x94D049BB133111EB
//	    h = h XOR h >> 31
//	key = (h with its lowest w bits replaced by b + 1), where 2^w is the smallest power of two above the number of bands
//
// A record's keys always differ from each other, because they contain the band. No key is 0, which marks an empty slot. The constants are those
// of the generator SplitMix64 (variant 13 in Stafford's "Better Bit Mixing").
//
// # Implementations
//
// Reference follows the rule with maps and processes one record at a time. Index processes batches, with the same steps and memory layout
// as the GPU version. Verdicts and log depend only on the order of the records, not on the batches. docs/adr/0055-near-duplicates.md
// explains the design.
package neardup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"millrace/internal/device"
)

// Limits of Parameters.
const (
	MaxBands   = 64      // a uint64 has a bit for each band
	MaxHashes  = 1024    // the limit of the operator minhash
	MaxRecords = 1 << 30 // so that labels fit into 32 bits
)

// Position identifies a record of a stream.
type Position = device.Position

// Parameters define the verdicts. All workers and the log of an index have the same parameters.
type Parameters struct {
	Bands   int    // bands of a signature, 1 to MaxBands
	Rows    int    // values of a band; Bands*Rows is at most MaxHashes
	K       int    // characters of a shingle, 1 to 256. The index only compares it with the log's.
	Seed    uint32 // seed of the signatures. The index only compares it with the log's.
	Records int    // records of a generation, 1 to MaxRecords
}

// Validate returns an error that names every parameter outside its limits.
func (p Parameters) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(p.Bands >= 1 && p.Bands <= MaxBands, "bands is %d: set 1 to %d", p.Bands, MaxBands)
	check(p.Rows >= 1 && p.Rows <= MaxHashes, "rows is %d: set 1 to %d", p.Rows, MaxHashes)
	check(p.Bands > MaxBands || p.Rows > MaxHashes || p.Bands*p.Rows <= MaxHashes, "bands times rows is %d: set %d at most", p.Bands*p.Rows, MaxHashes)
	check(p.K >= 1 && p.K <= 256, "k is %d: set 1 to 256", p.K)
	check(p.Records >= 1 && p.Records <= MaxRecords, "a generation has %d records: set 1 to %d", p.Records, MaxRecords)
	return errors.Join(errs...)
}

// ParseBlock returns the parameters in the parameter block of the operator's kernel: uint32 bands, rows, k and seed, little-endian. records
// is the number of records in a generation.
func ParseBlock(block []byte, records int) (p Parameters, err error) {
	if len(block) != 16 {
		return p, fmt.Errorf("the parameter block has %d bytes, want 16", len(block))
	}
	number := func(n int) uint32 { return binary.LittleEndian.Uint32(block[4*n:]) }
	p = Parameters{Bands: int(number(0)), Rows: int(number(1)), K: int(number(2)), Seed: number(3), Records: records}
	return p, p.Validate()
}

// Verdict is the index's decision on a record. If DuplicateOf is the zero Position, the record has no hits.
type Verdict struct {
	DuplicateOf Position   // least label of the hits
	Bands       int        // number of hits
	Also        []Position // other labels of the hits, each once, in ascending order
}

// AppendKeys appends the keys of a signature, one for each band. The signature has Bands*Rows values. The package comment defines the keys.
func (p Parameters) AppendKeys(keys []uint64, signature []uint32) []uint64 {
	for b := range p.Bands {
		keys = append(keys, p.key(b, signature[b*p.Rows:][:p.Rows]))
	}
	return keys
}

// bandBits returns the number of bits of a key that contain the band.
func (p Parameters) bandBits() int { return bits.Len(uint(p.Bands)) }

// bandOf returns the band of a key. If the key is invalid, the result may be any number.
func (p Parameters) bandOf(key uint64) int { return int(key&(1<<p.bandBits()-1)) - 1 }

func (p Parameters) key(b int, values []uint32) uint64 {
	h := uint64(b + 1)
	for i, v := range values {
		if i%2 == 0 {
			h ^= uint64(v)
			if i+1 < len(values) {
				h ^= uint64(values[i+1]) << 32
			}
			h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
			h = (h ^ h>>27) * 0x94D049BB133111EB
			h ^= h >> 31
		}
	}
	return h>>p.bandBits()<<p.bandBits() | uint64(b+1)
}
