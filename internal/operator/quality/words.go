package quality

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	client "millrace/client/quality"
)

// piece is the text between two newlines.
type piece struct {
	start, end  int
	first, last int  // from the first to after the last character that isn't a space; both are 0 if there is none
	extra       int  // bytes that don't begin a character
	hasLineEnd  bool // whether it contains a line end of str.splitlines, apart from a carriage return at its end
}

// wordCounts are the counters of words, except for symbol_words.
type wordCounts struct{ words, chars, longest, alpha, common uint32 }

// countWords counts the words of a piece, sets its remaining fields, and notes phrases.
func (s *scan) countWords(p *piece) {
	var (
		text, t = s.text, s.tables
		n       wordCounts
	)
	for i := p.start; i < p.end; {
		if text[i] == ' ' {
			i++
			continue
		}
		class := t.bytes[text[i]]
		if class&(spaceByte|highByte) != 0 {
			if space := s.spaceBytes(p, i); space > 0 {
				i += space
				continue
			}
		}
		start, extra, isAlpha := i, 0, class&letterByte != 0
		if p.last == 0 {
			p.first = start
		}
		i = asciiEnd(text, i)
		if i < len(text) && t.bytes[text[i]]&spaceByte == 0 {
			var hasAlphabetic bool
			i, extra, hasAlphabetic = s.wordEnd(i)
			isAlpha = isAlpha || hasAlphabetic
		}
		p.last = i
		word := text[start:i]
		if !isAlpha && !s.hasLetter(word) {
			if isMark(word) {
				s.c[client.SymbolWords]++
			}
		} else {
			n.alpha++
		}
		length := uint32(len(word) - extra)
		n.words++
		n.chars += length
		n.longest = max(n.longest, length)
		if s.nGrams != nil {
			s.nGrams.add(start, i, length)
		}
		n.common += t.common.count(text, start, len(word))
		if s.hasHash && 2*hashRuns(word) > length {
			s.c[client.SymbolWords]++ // a mark has no #
		}
		if i < len(text) && text[i] == ' ' {
			s.findPhrases(i)
		}
		p.extra += extra
	}
	s.c[client.Words] += n.words
	s.c[client.WordChars] += n.chars
	s.c[client.LongestWord] = max(s.c[client.LongestWord], n.longest)
	s.c[client.AlphaWords] += n.alpha
	s.c[client.CommonWords] += n.common
}

// spaceBytes returns the length of the space at a position of a piece, or 0 if no space is there.
func (s *scan) spaceBytes(p *piece, at int) int {
	class := s.tables.bytes[s.text[at]]
	if class&highByte == 0 {
		if class&lineEndByte != 0 && (s.text[at] != '\r' || at+1 < p.end) {
			p.hasLineEnd = true
		}
		return 1
	}
	u, size := utf8.DecodeRune(s.text[at:])
	char := s.tables.char(u)
	if char&spaceChar == 0 {
		return 0
	}
	if char&lineEndChar != 0 {
		p.hasLineEnd = true
	}
	p.extra += size - 1
	return size
}

// asciiEnd returns the position of the first byte from position at on that is at most 0x20 or at least 0x80. If fewer than 8
// bytes remain, it doesn't examine them and returns the position of the first of them.
func asciiEnd(text []byte, at int) int {
	const low, high = 0x2121212121212121, 0x8080808080808080
	for len(text)-at >= 8 {
		// Only the lowest byte with its high bit set is reliable, because a borrow may set the high bits of the bytes above it.
		eight := binary.LittleEndian.Uint64(text[at:])
		if found := (eight - low | eight) & high; found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
		at += 8
	}
	return at
}

// wordEnd returns the end of the word that contains position at. extra is the number of bytes from at to the end that
// don't begin a character. hasAlphabetic reports whether a character outside ASCII among these bytes is Alphabetic.
func (s *scan) wordEnd(at int) (end, extra int, hasAlphabetic bool) {
	text, t := s.text, s.tables
	for end = at; end < len(text); {
		class := t.bytes[text[end]]
		if class&highByte == 0 {
			if class&spaceByte != 0 {
				break
			}
			end++
			continue
		}
		u, size := utf8.DecodeRune(text[end:])
		char := t.char(u)
		if char&spaceChar != 0 {
			break
		}
		hasAlphabetic = hasAlphabetic || char&alphabeticChar != 0
		if char&bracketChar != 0 {
			s.c[client.ParenChars]++
		}
		extra += size - 1
		end += size
	}
	return end, extra, hasAlphabetic
}

// hasLetter reports whether a word has an ASCII letter.
func (s *scan) hasLetter(word []byte) bool {
	for _, b := range word {
		if s.tables.bytes[b]&letterByte != 0 {
			return true
		}
	}
	return false
}

func hashRuns(word []byte) (runs uint32) {
	for i, b := range word {
		if b == '#' && (i == 0 || word[i-1] != '#') {
			runs++
		}
	}
	return runs
}

// isMark reports whether a word is one of Marks. No mark has a letter.
func isMark(word []byte) bool {
	switch string(word) {
	case "...", "[...]", "\u2026", "(...)", "[\u2026]", "-\u00BB":
		return true
	}
	return false
}

// maxCommonWord is the length of the longest of CommonWords.
const maxCommonWord = 4

// commonTable is a hash table of CommonWords without collisions. A key consists of a word's bytes, with the first byte lowest.
type commonTable struct {
	multiplier uint32
	keys       [16]uint32
}

// noKey isn't the key of any word, because no text in UTF-8 has a byte 0xFF.
const noKey = 0xFFFFFFFF

// commonMasks[n] selects the bytes of a word of length n for its key. The key of a longer word is 0, which isn't in the table.
var commonMasks = [maxCommonWord + 2]uint32{0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0}

func newCommonTable() (t commonTable) {
	for hasCollision := true; hasCollision; {
		t.multiplier += 0x9E3779B2
		for i := range t.keys {
			t.keys[i] = noKey
		}
		hasCollision = false
		for _, w := range CommonWords {
			var word [maxCommonWord]byte
			copy(word[:], w)
			key := binary.LittleEndian.Uint32(word[:])
			hasCollision = hasCollision || t.keys[t.slot(key)] != noKey
			t.keys[t.slot(key)] = key
		}
	}
	return t
}

func (t *commonTable) slot(key uint32) uint32 { return key * t.multiplier >> 28 }

// count returns 1 if the word of the given length at a position of the text is in the table, or else 0.
func (t *commonTable) count(text []byte, at, length int) uint32 {
	var key uint32
	if len(text)-at >= maxCommonWord {
		key = binary.LittleEndian.Uint32(text[at:])
	} else {
		var word [maxCommonWord]byte
		copy(word[:], text[at:])
		key = binary.LittleEndian.Uint32(word[:])
	}
	key &= commonMasks[min(length, maxCommonWord+1)]
	var found uint32
	if t.keys[t.slot(key)] == key {
		found = 1
	}
	return found
}

// countURLs counts the URLs of the text. A URL ends before a character that no URL has, so it never contains the next URL's scheme.
func (s *scan) countURLs() {
	const separator = "://"
	text := s.text
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(separator))
		if i < 0 {
			return
		}
		colon := at + i
		at = colon + len(separator)
		start := colon
		for _, scheme := range []string{"http", "https"} {
			if bytes.HasSuffix(text[:colon], []byte(scheme)) {
				start = colon - len(scheme)
			}
		}
		end := s.urlEnd(text, at)
		if start == colon || end == at {
			continue
		}
		s.c[client.URLChars] += uint32(end - start)
		if bytes.Contains(text[start:end], []byte("porn")) {
			s.c[client.PornURLs]++
		}
		at = end
	}
}

// urlEnd returns the end of the longest run of URL characters and escapes from a position on.
func (s *scan) urlEnd(text []byte, at int) int {
	t := s.tables
	for at < len(text) {
		switch {
		case t.isURL[text[at]]:
			at++
		case text[at] == '%' && len(text)-at >= 3 && t.isHex[text[at+1]] && t.isHex[text[at+2]]:
			at += 3
		default:
			return at
		}
	}
	return at
}
