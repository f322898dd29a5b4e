package quality

import (
	"bytes"
	"unicode/utf8"

	client "millrace/client/quality"
)

// Counters are the counters of a text. The counters of n-grams are 0 if n-grams aren't counted.
type Counters [client.NumCounters]uint32

// scan has the state of Count for one text.
type scan struct {
	text   []byte
	c      *Counters
	tables *tables

	hasHash             bool // whether the text has a #
	hasPolicy, hasLorem bool // whether the current paragraph has a phrase

	nGrams *nGrams // nil if n-grams aren't counted
}

// MemoryBytes returns the total size in bytes of the memory that Count needs for several texts. bytes is their total length.
func MemoryBytes(texts, bytes int, hasNGrams bool) int {
	if !hasNGrams {
		return slotBytes * bytes
	}
	const atMost = numberBytes * nGramArrays / 2 // a word and the space after it have at least 2 bytes
	return atMost * (bytes + texts)
}

// Count sets c to the counters of a text, as Reference does. It returns false if the text isn't valid UTF-8. Count uses memory only
// during the call. memory must have at least MemoryBytes bytes.
func Count(c *Counters, text, memory []byte, hasNGrams bool) (ok bool) {
	*c = Counters{}
	if !utf8.Valid(text) {
		return false
	}
	s := scan{text: text, c: c, tables: sharedTables()}
	n := s.tables.countBytes(text)
	c[client.Chars] = uint32(len(text)) - n.continuation
	c[client.Newlines], c[client.AlnumChars], c[client.DigitChars] = n.newline, n.alnum, n.digit
	c[client.WhiteChars], c[client.ParenChars] = n.white, n.bracket
	s.hasHash = n.hash > 0
	newlines := int(n.newline)
	var grams nGrams
	if hasNGrams {
		grams = newNGrams(len(text), memory)
		s.nGrams = &grams
	}
	memory = memory[:slotBytes*len(text)]
	s.countURLs()
	s.countPieces(newlines, memory)
	s.countRepeatedParagraphs(newlines, memory)
	s.countRuns(newlines, memory)
	if hasNGrams {
		grams.count(c, text)
	}
	return true
}

// countPieces sets the counters that depend on words, lines and phrases.
func (s *scan) countPieces(newlines int, memory []byte) {
	const separator = "\n"
	set := newPartSet(s.text, separator, newlines+1, memory)
	empty := uint32(0) // empty pieces at both ends of the text
	for start := 0; ; {
		p := piece{start: start, end: len(s.text)}
		isLast := true
		if i := bytes.IndexByte(s.text[start:], '\n'); i >= 0 {
			p.end, isLast = start+i, false
		}
		switch {
		case p.start < p.end:
			s.countPiece(&p, &set)
		case start == 0 || isLast:
			empty++
			s.endParagraph()
		default:
			s.endParagraph() // two newlines precede the next piece
		}
		s.countPythonLines(p, isLast)
		if isLast {
			break
		}
		start = p.end + len(separator)
	}
	s.endParagraph()
	s.c[client.GrLines] += empty
	s.c[client.GrRepeatedLines] += max(empty, 1) - 1
}

// countPiece counts a piece that isn't empty.
func (s *scan) countPiece(p *piece, set *partSet) {
	s.countWords(p)
	length := uint32(p.end - p.start - p.extra)
	if length >= MinLongLine {
		s.c[client.LongLines]++
	}
	isLine := p.last > 0
	if isLine {
		s.countLine(p, length)
	}
	s.c[client.GrLines]++
	if set.add(p.start, p.end) {
		s.c[client.GrRepeatedLines]++
		s.c[client.GrRepeatedLineChars] += length
		if isLine {
			s.c[client.RepeatedLines]++
			s.c[client.RepeatedLineChars] += length
		}
	}
}

// endParagraph counts the paragraph if it contains a policy or placeholder phrase.
func (s *scan) endParagraph() {
	if s.hasPolicy {
		s.c[client.PolicyParagraphs]++
	}
	if s.hasLorem {
		s.c[client.LoremParagraphs]++
	}
	s.hasPolicy, s.hasLorem = false, false
}
