// Package payloads generates payloads for tests: sets that reveal bugs in the handling of ragged batches, of UTF-8
// boundaries and of long rows that are split. The same seed gives the same bytes on every machine and with every Go
// version, so a failure on one device can be reproduced on another.
//
// The tests of operators and devices use it. Start reading with Sets.
package payloads

import (
	"bytes"
	"fmt"
	"math"
)

// Set is a list of payloads that form one batch or several consecutive batches.
type Set struct {
	Name     string // used as the name of a subtest
	Payloads [][]byte
}

// Sets returns all sets of this package, about 4 MB in total.
func Sets(seed uint64) []Set {
	return []Set{
		{"empties", Empties(8192)},
		{"lengths", Lengths(seed, 300)},
		{"text lengths", TextLengths(seed, 300)},
		{"invalid utf-8", InvalidUTF8(seed)},
		{"long characters", LongCharacters(seed)},
		{"one megabyte", [][]byte{Text(seed, 1<<20)}},
		{"megabyte among small", LongAmongShort(seed, 1<<20, 512)},
		{"mixed", Mixed(seed)},
		{"one byte", OneByte()},
		{"page boundaries", PageBoundaries(seed)},
	}
}

// Adversarial returns all payloads of Sets that are shorter than a megabyte as one list, about 1 MB in total.
func Adversarial(seed uint64) [][]byte {
	var all [][]byte
	for _, set := range Sets(seed) {
		for _, payload := range set.Payloads {
			if len(payload) < 1<<20 {
				all = append(all, payload)
			}
		}
	}
	return all
}

// Empties returns n empty payloads.
func Empties(n int) [][]byte {
	return make([][]byte, n)
}

// OneByte returns 256 payloads of one byte each, with all values.
func OneByte() [][]byte {
	payloads := make([][]byte, 256)
	for i := range payloads {
		payloads[i] = []byte{byte(i)}
	}
	return payloads
}

// PageBoundaries returns payloads that end before, at and behind multiples of 4 KiB and 64 KiB from the start of the batch, and payloads
// whose own length is about such a multiple. Payloads of 1 to 3 bytes lie between them.
func PageBoundaries(seed uint64) [][]byte {
	g := newGenerator(seed)
	var payloads [][]byte
	end := 0
	add := func(n int) {
		payloads = append(payloads, Random(g.next(), n))
		end += n
	}
	for _, page := range []int{4 << 10, 64 << 10} {
		for _, from := range []int{-1, 0, 1} {
			add(page - end%page + from) // up to the boundary
			add(1 + g.below(3))
			add(page + from)
		}
	}
	return payloads
}

// Lengths returns one payload of random bytes for each length from 0 to longest.
func Lengths(seed uint64, longest int) [][]byte {
	payloads := make([][]byte, longest+1)
	for n := range payloads {
		payloads[n] = Random(seed+uint64(n), n)
	}
	return payloads
}

// TextLengths returns one payload of text for each length from 0 to longest.
func TextLengths(seed uint64, longest int) [][]byte {
	payloads := make([][]byte, longest+1)
	for n := range payloads {
		payloads[n] = Text(seed+uint64(n), n)
	}
	return payloads
}

// LongAmongShort returns one text of long bytes in the middle of short payloads of 0 to 63 bytes. Unless rows are
// split, this batch leaves all but one core idle.
func LongAmongShort(seed uint64, long, short int) [][]byte {
	g := newGenerator(seed)
	var payloads [][]byte
	for i := range short {
		if i == short/2 {
			payloads = append(payloads, Text(g.next(), long))
		}
		payloads = append(payloads, Text(g.next(), g.below(64)))
	}
	return payloads
}

// Mixed returns 200 payloads of up to 64 KiB, alternating between text and random bytes, with lengths spread evenly
// over the powers of two. The first and the last payload are empty.
func Mixed(seed uint64) [][]byte {
	g := newGenerator(seed)
	payloads := [][]byte{{}}
	for i := range 200 {
		n := g.below(2 << g.below(16))
		if i%2 == 0 {
			payloads = append(payloads, Text(g.next(), n))
		} else {
			payloads = append(payloads, Random(g.next(), n))
		}
	}
	return append(payloads, []byte{})
}

// Random returns n random bytes.
func Random(seed uint64, n int) []byte {
	g := newGenerator(seed)
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(g.next() >> 56)
	}
	return payload
}

// Text returns n bytes of words in several scripts, so that characters have 1 to 4 bytes. The last character may be cut
// off.
func Text(seed uint64, n int) []byte {
	words := []string{
		"the", "mill", "turns", "while", "water", "lasts", "a", "of", "stone", "grain",
		"größer", "où", "naïve", "мельница", "вода", "水車", "石臼", "방앗간", "طاحونة", "🌊", "🌾🌾",
	}
	g := newGenerator(seed)
	text := make([]byte, 0, n+32)
	for len(text) < n {
		text = append(text, words[g.below(len(words))]...)
		text = append(text, ' ')
	}
	return text[:n:n]
}

// Pack lays payloads out as a ragged batch: the bytes back to back, and a table with one more offset than there are
// payloads. It panics above 4 GiB, which 32-bit offsets can't represent.
func Pack(payloads [][]byte) (rows []byte, offsets []uint32) {
	rows = bytes.Join(payloads, nil)
	if uint64(len(rows)) > math.MaxUint32 {
		panic(fmt.Sprintf("payloads: %d bytes do not fit a batch", len(rows)))
	}
	offsets = make([]uint32, 1, len(payloads)+1)
	var end uint32
	for _, payload := range payloads {
		end += uint32(len(payload))
		offsets = append(offsets, end)
	}
	return rows, offsets
}

// generator is xorshift64* (Vigna, 2016), which is small and has a fixed sequence.
type generator uint64

func newGenerator(seed uint64) *generator {
	g := generator(seed*0x9E3779B97F4A7C15 | 1) // the state must not be zero
	g.next()
	return &g
}

func (g *generator) next() uint64 {
	s := uint64(*g)
	s ^= s >> 12
	s ^= s << 25
	s ^= s >> 27
	*g = generator(s)
	return s * 0x2545F4914F6CDD1D
}

// below returns a number from 0 to n-1. Since n is small, so is the bias of the remainder.
func (g *generator) below(n int) int {
	return int(g.next() >> 32 % uint64(n))
}
