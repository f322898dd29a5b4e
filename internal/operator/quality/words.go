package quality

import (
	"bytes"
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

// countWords counts the words of a piece, sets its remaining fields, and notes phrases.
func (s *scan) countWords(p *piece) {
	text, t := s.text, s.tables
	for i := p.start; i < p.end; {
		class := t.bytes[text[i]]
		if class&spaceByte != 0 {
			if class&lineEndByte != 0 && (text[i] != '\r' || i+1 < p.end) {
				p.hasLineEnd = true
			}
			i++
			continue
		}
		if class&highByte != 0 {
			u, size := utf8.DecodeRune(text[i:])
			if char := t.char(u); char&spaceChar != 0 {
				p.hasLineEnd = p.hasLineEnd || char&lineEndChar != 0
				p.extra += size - 1
				i += size
				continue
			}
		}
		if p.last == 0 {
			p.first = i
		}
		i = s.countWord(i, p)
		p.last = i
	}
}

// countWord counts the word that starts at a position, and returns its end.
func (s *scan) countWord(start int, p *piece) (end int) {
	var (
		text, t = s.text[:p.end], s.tables
		classes byteClass
		extra   int
	)
	for end = start; end < len(text); {
		class := t.bytes[text[end]]
		if class&(spaceByte|highByte) == 0 {
			classes |= class
			end++
			continue
		}
		if class&spaceByte != 0 {
			break
		}
		u, size := utf8.DecodeRune(text[end:])
		char := t.char(u)
		if char&spaceChar != 0 {
			break
		}
		if char&alphabeticChar != 0 {
			classes |= letterByte
		}
		if char&bracketChar != 0 {
			s.c[client.ParenChars]++
		}
		extra += size - 1
		end += size
	}
	p.extra += extra
	word := text[start:end]
	length := uint32(len(word) - extra)
	s.c[client.Words]++
	s.c[client.WordChars] += length
	s.c[client.LongestWord] = max(s.c[client.LongestWord], length)
	if classes&letterByte != 0 {
		s.c[client.AlphaWords]++
	}
	switch {
	case classes&hashByte != 0:
		if 2*hashRuns(word) > length {
			s.c[client.SymbolWords]++
		}
	case classes&letterByte == 0:
		if isMark(word) {
			s.c[client.SymbolWords]++
		}
	case len(word) <= maxCommonWord && isCommon(word):
		s.c[client.CommonWords]++
	}
	if classes&colonByte != 0 {
		s.countURLs(word)
	}
	if end < len(text) && text[end] == ' ' && end-start >= 2 {
		s.findPhrases(end)
	}
	return end
}

// hashRuns returns the number of runs of #.
func hashRuns(word []byte) (runs uint32) {
	for i, b := range word {
		if b == '#' && (i == 0 || word[i-1] != '#') {
			runs++
		}
	}
	return runs
}

// isMark reports whether a word is one of Marks. No mark has a letter or #.
func isMark(word []byte) bool {
	switch string(word) {
	case "...", "[...]", "\u2026", "(...)", "[\u2026]", "-\u00BB":
		return true
	}
	return false
}

const maxCommonWord = 4

// isCommon reports whether a word is one of CommonWords.
func isCommon(word []byte) bool {
	switch string(word) {
	case "the", "be", "to", "of", "and", "that", "have", "with":
		return true
	}
	return false
}

// countURLs counts the URLs of a word that contains a colon. A URL has no space.
func (s *scan) countURLs(word []byte) {
	const separator = "://"
	for at := 0; ; {
		i := bytes.Index(word[at:], []byte(separator))
		if i < 0 {
			return
		}
		colon := at + i
		at = colon + 1
		start := colon
		for _, scheme := range []string{"http", "https"} {
			if bytes.HasSuffix(word[:colon], []byte(scheme)) {
				start = colon - len(scheme)
			}
		}
		if start == colon {
			continue
		}
		end := s.urlEnd(word, colon+len(separator))
		if end == colon+len(separator) {
			continue
		}
		s.c[client.URLChars] += uint32(end - start)
		if bytes.Contains(word[start:end], []byte("porn")) {
			s.c[client.PornURLs]++
		}
		word, at = word[end:], 0
	}
}

// urlEnd returns the end of the longest run of URL characters and escapes from a position on.
func (s *scan) urlEnd(word []byte, at int) int {
	t := s.tables
	for at < len(word) {
		switch {
		case t.isURL[word[at]]:
			at++
		case word[at] == '%' && len(word)-at >= 3 && t.isHex[word[at+1]] && t.isHex[word[at+2]]:
			at += 3
		default:
			return at
		}
	}
	return at
}
