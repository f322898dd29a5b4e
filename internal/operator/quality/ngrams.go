package quality

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"

	client "millrace/client/quality"
)

// This file counts duplicate n-grams. It gives equal words the same number and different words different numbers. The numbers of two
// neighbors then determine a 2-gram, which also gets a number. Two 2-grams determine a 4-gram, and two n-grams that overlap determine an
// (n+1)-gram. If a part of a pair occurs only once in the text, the pair also occurs only once. Most texts therefore have few pairs left
// after the words. The time is proportional to the length of the text.

const (
	// nGramArrays is the number of arrays with one number per word: two for the table, and one for each such field of nGrams.
	nGramArrays = 6

	// numberBytes is the size of a number in the memory.
	numberBytes = 4
)

// nGrams are the words of a text, and the numbers of its n-grams.
type nGrams struct {
	words        int
	length       uint32  // characters of all words
	table        numbers // two elements for each word
	starts, ends numbers // of words in the text; once words have ids, starts has the positions, and ends the ids that join makes
	chars        numbers // at each word: characters of all words up to and including this word
	ids          numbers // at the position of an n-gram's first word: the n-gram's number, or 0 if the n-gram occurs once
	positions    int     // number of positions where n-grams may occur more than once
	collisions   int     // number of times that a slot contained another element
}

// isRepeated is the bit in a number that marks n-grams that occur more than once. The other bits are the position of the first such n-gram.
const isRepeated = 1 << 31

// numbers are 32-bit numbers in memory.
type numbers []byte

func (n numbers) at(i int) uint32 { return binary.LittleEndian.Uint32(n[numberBytes*i:]) }

func (n numbers) set(i int, number uint32) { binary.LittleEndian.PutUint32(n[numberBytes*i:], number) }

// multiplier is random, like seed, so that nobody can write texts whose n-grams collide.
var multiplier = rand.Uint64() | 1

// maxWords returns the maximum number of words of a text.
func maxWords(bytes int) int { return (bytes + 1) / 2 }

// newNGrams returns the n-grams of a text without words.
func newNGrams(bytes int, memory []byte) (g nGrams) {
	size := numberBytes * maxWords(bytes)
	cut := func(arrays int) (array numbers) {
		array, memory = memory[:arrays*size], memory[arrays*size:]
		return array
	}
	g.table, g.starts, g.ends, g.chars, g.ids = cut(2), cut(1), cut(1), cut(1), cut(1)
	return g
}

// add adds the word text[start:end] of length characters.
func (g *nGrams) add(start, end int, length uint32) {
	g.length += length
	g.starts.set(g.words, uint32(start))
	g.ends.set(g.words, uint32(end))
	g.chars.set(g.words, g.length)
	g.words++
}

func (g *nGrams) count(c *Counters, text []byte) {
	if g.words < MinNGram {
		return
	}
	g.numberWords(text)
	g.join(1, 1, nil)
	g.join(2, 2, nil)
	for n := MinNGram; n <= MaxNGram; n++ {
		g.join(n-1, 1, &c[client.Duplicate5GramChars+client.Counter(n-MinNGram)])
	}
}

// newTable returns an empty hash table for a number of elements.
func (g *nGrams) newTable(elements int) numbers {
	table := g.table[:2*numberBytes*elements]
	clear(table)
	return table
}

// numberWords sets the ids and positions of words.
func (g *nGrams) numberWords(text []byte) {
	table := g.newTable(g.words)
	word := func(i int) []byte { return text[g.starts.at(i):g.ends.at(i)] }
	for i := range g.words {
		own := word(i)
		for slot := newSlot(table, uint32(maphash.Bytes(seed, own))); ; slot.next(&g.collisions) {
			first, ok := slot.first()
			if !ok {
				slot.set(i)
				g.ids.set(i, 0)
				break
			}
			if bytes.Equal(word(first), own) {
				g.mark(g.ids, first, i)
				break
			}
		}
	}
	for i := range g.words {
		if g.ids.at(i) != 0 {
			g.starts.set(g.positions, uint32(i))
			g.positions++
		}
	}
}

// mark notes that the n-gram at a position is equal to the first one at another position.
func (g *nGrams) mark(ids numbers, first, i int) {
	ids.set(first, isRepeated|uint32(first))
	ids.set(i, isRepeated|uint32(first))
}

// join numbers the (n+distance)-grams that consist of two n-grams at a distance. If chars isn't nil, it is the counter of duplicate
// n-grams.
func (g *nGrams) join(n, distance int, chars *uint32) {
	n += distance
	g.choose(n, distance)
	table, next := g.newTable(g.positions), g.ends
	clear(next[:numberBytes*g.words])
	last := -n // position of the last duplicate
	for k := range g.positions {
		i := int(g.starts.at(k))
		head, tail := g.ids.at(i), g.ids.at(i+distance)
		for slot := newSlot(table, hashPair(head, tail)); ; slot.next(&g.collisions) {
			first, ok := slot.first()
			if !ok {
				slot.set(i)
				break
			}
			if g.ids.at(first) != head || g.ids.at(first+distance) != tail {
				continue
			}
			g.mark(next, first, i)
			if chars != nil {
				counted := max(n-(i-last), 0) // number of words that the last duplicate contains too
				*chars += g.chars.at(i+n-1) - g.chars.at(i+counted-1) + uint32(min(n-counted, n-1))
				last = i
			}
			break
		}
	}
	g.ids, g.ends = next, g.ids
}

// choose removes the positions where no n-gram can occur more than once.
func (g *nGrams) choose(n, distance int) {
	chosen := 0
	for k := range g.positions {
		i := int(g.starts.at(k))
		if i+n <= g.words && g.ids.at(i) != 0 && g.ids.at(i+distance) != 0 {
			g.starts.set(chosen, uint32(i))
			chosen++
		}
	}
	g.positions = chosen
}

func hashPair(head, tail uint32) uint32 {
	high, low := bits.Mul64(uint64(head)<<32|uint64(tail), multiplier)
	return uint32((high ^ low) >> 32)
}

// slot is a place in a hash table. Its value is 0 if it is empty, or else a position plus 1.
type slot struct {
	table numbers
	at    int
}

// newSlot returns the first place for a hash.
func newSlot(table numbers, hash uint32) slot {
	at, _ := bits.Mul32(hash, uint32(len(table)/numberBytes))
	return slot{table, int(at)}
}

// first returns the position in the slot. ok is false if the slot is empty.
func (s *slot) first() (position int, ok bool) {
	n := s.table.at(s.at)
	return int(n) - 1, n != 0
}

func (s *slot) set(position int) { s.table.set(s.at, uint32(position)+1) }

// next moves to the next place and counts the collision.
func (s *slot) next(collisions *int) {
	*collisions++
	if s.at++; s.at == len(s.table)/numberBytes {
		s.at = 0
	}
}
