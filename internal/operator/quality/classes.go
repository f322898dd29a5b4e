package quality

import (
	"strings"
	"sync"
)

// This file has the tables of Count: the properties of each byte and of each code point outside ASCII.

// byteClass is a set of properties of a byte.
type byteClass uint8

const (
	spaceByte   byteClass = 1 << iota // a space
	lineEndByte                       // a line end of str.splitlines that isn't a newline
	letterByte                        // a letter; no other ASCII character is Alphabetic
	highByte                          // part of a code point outside ASCII
)

// charClass is a set of properties of a code point outside ASCII.
type charClass uint8

const (
	spaceChar charClass = 1 << iota
	lineEndChar
	alphabeticChar
	bulletChar
	bracketChar
	terminalChar
)

// Counts of bytes are sums of entries of tables.counts, in which each counter has 8 bits. No counter overflows within 255 bytes.
const (
	alnumShift = 8 * iota
	digitShift
	whiteShift
	bracketShift
	newlineShift
	hashShift
	continuationShift // bytes 10xxxxxx, which don't begin a character

	maxCountedBytes = 255
)

// tables are the tables of Count.
type tables struct {
	bytes  [256]byteClass
	counts [256]uint64

	// Properties of code points from U+0080 on: chars[blocks[u/256]][u%256].
	blocks [0x1100]uint8
	chars  [][256]charClass

	isURL, isHex [256]bool
	common       commonTable
	phrases      *phraseTable
}

// sharedTables returns the tables. No caller may change them.
var sharedTables = sync.OnceValue(func() *tables {
	t := &tables{common: newCommonTable(), phrases: newPhraseTable()}
	for b := range t.bytes {
		switch {
		case b >= 0x80:
			t.bytes[b] = highByte
		case strings.IndexByte(Letters, byte(b)) >= 0:
			t.bytes[b] = letterByte
		}
		if b>>6 == 0b10 {
			t.counts[b] = 1 << continuationShift
		}
		t.isURL[b] = strings.IndexByte(URLChars, byte(b)) >= 0
		t.isHex[b] = strings.IndexByte(Hex, byte(b)) >= 0
	}
	for shift, set := range map[int]string{alnumShift: Alnum, digitShift: Digits, whiteShift: White, newlineShift: "\n", hashShift: "#"} {
		for _, b := range []byte(set) {
			t.counts[b] |= 1 << shift
		}
	}
	t.addChars()
	return t
})

// addChars adds the properties of code points.
func (t *tables) addChars() {
	none := len(Alphabetic.Bits)
	t.chars = make([][256]charClass, none+1)
	for number, bits := range Alphabetic.Bits {
		for i := range 256 {
			if bits[i>>5]>>(i&31)&1 != 0 {
				t.chars[number][i] = alphabeticChar
			}
		}
	}
	for block := range t.blocks {
		t.blocks[block] = uint8(none)
		if block < len(Alphabetic.Index) {
			t.blocks[block] = Alphabetic.Index[block]
		}
	}
	for class, list := range map[charClass][]rune{
		spaceChar: Spaces, lineEndChar: LineEnds, bulletChar: Bullets, bracketChar: Brackets, terminalChar: Terminal,
	} {
		for _, u := range list {
			t.add(u, class)
		}
	}
}

// add adds a property to a code point.
func (t *tables) add(u rune, class charClass) {
	switch {
	case u >= 0x80:
		block := u >> 8
		if shared := int(t.blocks[block]); shared <= len(Alphabetic.Bits) {
			t.blocks[block] = uint8(len(t.chars))
			t.chars = append(t.chars, t.chars[shared])
		}
		t.chars[t.blocks[block]][u&0xFF] |= class
	case class == spaceChar:
		t.bytes[u] |= spaceByte
	case class == lineEndChar && u != '\n':
		t.bytes[u] |= lineEndByte
	case class == bracketChar:
		t.counts[u] |= 1 << bracketShift
	}
}

// char returns the properties of a code point from U+0080 on.
func (t *tables) char(u rune) charClass { return t.chars[t.blocks[u>>8]][u&0xFF] }

type byteCounts struct{ alnum, digit, white, bracket, newline, hash, continuation uint32 }

func (t *tables) countBytes(text []byte) (n byteCounts) {
	for len(text) > 0 {
		part := text[:min(len(text), maxCountedBytes)]
		text = text[len(part):]
		var sum uint64
		for ; len(part) >= 8; part = part[8:] {
			b := (*[8]byte)(part)
			sum += t.counts[b[0]] + t.counts[b[1]] + t.counts[b[2]] + t.counts[b[3]]
			sum += t.counts[b[4]] + t.counts[b[5]] + t.counts[b[6]] + t.counts[b[7]]
		}
		for _, b := range part {
			sum += t.counts[b]
		}
		n.alnum += uint32(sum >> alnumShift & 0xFF)
		n.digit += uint32(sum >> digitShift & 0xFF)
		n.white += uint32(sum >> whiteShift & 0xFF)
		n.bracket += uint32(sum >> bracketShift & 0xFF)
		n.newline += uint32(sum >> newlineShift & 0xFF)
		n.hash += uint32(sum >> hashShift & 0xFF)
		n.continuation += uint32(sum >> continuationShift & 0xFF)
	}
	return n
}
