package quality

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"unicode/utf8"

	client "millrace/client/quality"
)

// slotBytes is the size of a slot. The sets of a text need at most one slot per byte.
const slotBytes = 4

// seed is random, so nobody can write texts whose parts collide. The counters don't depend on it.
var seed = maphash.MakeSeed()

// partSet is a set of parts of one text. Its memory is a hash table of 32-bit slots. A slot contains 0, or the start of a part plus 1. The
// ends of parts follow from the text: a part ends where the separator follows, or at the end of the text.
type partSet struct {
	text      []byte // from its start to the end of the last part
	separator string
	slots     []byte
}

// newPartSet returns an empty set for at most the given number of parts that aren't empty. A part and the separator after it have at
// least 2 bytes, so the slots suffice.
func newPartSet(text []byte, separator string, parts int, memory []byte) partSet {
	slots := memory[:slotBytes*min(2*parts, len(memory)/slotBytes)]
	clear(slots)
	return partSet{text: text, separator: separator, slots: slots}
}

// add adds the part text[start:end], which isn't empty. repeated is true if the set had an equal part.
func (p *partSet) add(start, end int) (repeated bool) {
	part := p.text[start:end]
	hash := uint32(maphash.Bytes(seed, part))
	count := uint32(len(p.slots) / slotBytes)
	at, _ := bits.Mul32(hash, count)
	for ; ; at++ {
		if at == count {
			at = 0
		}
		slot := p.slots[at*slotBytes:][:slotBytes]
		other := binary.LittleEndian.Uint32(slot)
		if other == 0 {
			binary.LittleEndian.PutUint32(slot, uint32(start)+1)
			return false
		}
		if p.isPart(int(other-1), part) {
			return true
		}
	}
}

// isPart reports whether the part that starts at a position is equal to part.
func (p *partSet) isPart(start int, part []byte) bool {
	rest := p.text[start:]
	if !bytes.HasPrefix(rest, part) {
		return false
	}
	rest = rest[len(part):]
	return len(rest) == 0 || len(rest) >= len(p.separator) && string(rest[:len(p.separator)]) == p.separator
}

// countRepeatedParagraphs counts all paragraphs and the repeated paragraphs. newlines is the number of newlines.
func (s *scan) countRepeatedParagraphs(newlines int, memory []byte) {
	const separator = "\n\n"
	s.c[client.Paragraphs] = 1
	if newlines < len(separator) {
		return
	}
	set := newPartSet(s.text, separator, newlines/len(separator)+1, memory)
	empty := 0
	for start := 0; ; {
		end, isLast := len(s.text), true
		if i := bytes.Index(s.text[start:], []byte(separator)); i >= 0 {
			end, isLast = start+i, false
		}
		switch {
		case start == end:
			empty++
		// Only the last paragraph can end with a newline. It then differs from all other paragraphs, and the set couldn't compare it.
		case s.text[end-1] != '\n' && set.add(start, end):
			s.c[client.RepeatedParagraphs]++
			s.c[client.RepeatedParagraphChars] += uint32(utf8.RuneCount(s.text[start:end]))
		}
		if isLast {
			break
		}
		s.c[client.Paragraphs]++
		start = end + len(separator)
	}
	s.c[client.RepeatedParagraphs] += uint32(max(empty-1, 0))
}

// countRuns counts the parts between runs of two or more newlines, in the text without the spaces at its ends.
func (s *scan) countRuns(newlines int, memory []byte) {
	const separator = "\n\n"
	s.c[client.GrParagraphs] = 1
	if newlines < len(separator) {
		return
	}
	text := s.strip(s.text)
	set := newPartSet(text, separator, newlines/len(separator)+1, memory)
	for start := 0; ; {
		i := bytes.Index(text[start:], []byte(separator))
		if i < 0 {
			i = len(text) - start
		}
		end := start + i
		if start < end && set.add(start, end) {
			s.c[client.GrRepeatedParagraphs]++
			s.c[client.GrRepeatedParagraphChars] += uint32(utf8.RuneCount(text[start:end]))
		}
		if end == len(text) {
			return
		}
		s.c[client.GrParagraphs]++
		for start = end; text[start] == '\n'; start++ { // the text doesn't end with a newline
		}
	}
}
