package neardup

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// generation is a hash table from keys to labels, with open addressing and linear probing. It is at most four fifths full.
//
// A label is an index into positions. The first part of positions holds the labels that records carried over from the old generation. The
// second part, from firstRecord, holds the label of each record. A record inserts all its keys with the same label. The label of a key
// therefore follows from the record that inserts the key.
type generation struct {
	keys      []uint64 // 0 if the slot is empty
	labels    []uint32 // labels of the keys in the same slots
	positions []Position

	firstRecord uint32
	carried     int // number of labels that the records so far carry over, including labels for which there was no space

	// multiplier is odd and random, so nobody can choose texts whose keys collide in the table. Results don't depend on it.
	multiplier uint64

	goroutines int // number of goroutines that put keys, or 0 for the default; only tests set it
}

// generationSize is the maximum number of records of a generation, and of the labels that they can carry over.
type generationSize struct{ records, carried int }

// slots returns the number of slots of a table for the keys of n records.
func slots(n, bands int) int { return (n*bands*5 + 3) / 4 }

func newGeneration(r generationSize, bands int) *generation {
	n := slots(r.records, bands)
	return &generation{
		keys:        make([]uint64, n),
		labels:      make([]uint32, n),
		positions:   make([]Position, r.carried+r.records),
		firstRecord: uint32(r.carried),
		multiplier:  rand.Uint64() | 1,
	}
}

// bytes returns the size of a generation in bytes.
func (r generationSize) bytes(bands int) int64 {
	const slot, position = 8 + 4, 16
	return int64(slots(r.records, bands))*slot + int64(r.carried+r.records)*position
}

func (g *generation) clear() {
	clear(g.keys)
	g.carried = 0
}

// home returns the slot at which the search for a key begins.
func (g *generation) home(key uint64) int {
	home, _ := bits.Mul64(key*g.multiplier, uint64(len(g.keys)))
	return int(home)
}

// find returns the slot of a key, or the empty slot in which it belongs. There is always an empty slot.
func (g *generation) find(key uint64) (slot int, found bool) {
	for slot = g.home(key); g.keys[slot] != key; {
		if g.keys[slot] == 0 {
			return slot, false
		}
		if slot++; slot == len(g.keys) {
			slot = 0
		}
	}
	return slot, true
}

// row describes the changes that one record made in its generation. The log stores rows.
type row struct {
	position, label Position
	inserted        uint64  // bit b is set if the record inserted the key of band b
	keys            []byte  // the inserted keys, in the order of bands, each with KeyBytes
	carries         int     // number of different labels of its copied keys
	relabeled       bool    // whether its copied keys have the record's label, because the generation had no space for their labels
	carried         []carry // one for each different label of its copied keys; none if relabeled
}

// carry is a label that a record carried over from the old generation, with the bands of the copied keys.
type carry struct {
	bands uint64
	label Position
}

// insert applies the changes of records. conflicts is the number of keys that the table already contained. The generation must have
// space for Parameters.Records carried labels.
func (g *generation) insert(in *Inserts) (conflicts int) {
	copy(g.positions[int(g.firstRecord)+in.First:], in.Labels)
	copy(g.positions[in.FirstCarried:], in.CarriedLabels)
	g.carried += in.Carries
	var found atomic.Int64
	g.put(in.Keys, func(all []place) {
		for _, p := range all {
			if p.found {
				found.Add(1)
			} else {
				g.labels[p.slot] = in.KeyLabels[p.key]
			}
		}
	})
	return int(found.Load())
}
