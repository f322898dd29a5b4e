package quality

import (
	"bytes"
	"unicode/utf8"

	client "millrace/client/quality"
)

// countLine counts a piece that is a line, apart from repeats.
func (s *scan) countLine(p *piece, length uint32) {
	s.c[client.Lines]++
	s.c[client.LineChars] += length
	if length <= MaxShortLine {
		s.c[client.ShortLines]++
	}
	stripped := s.text[p.first:p.last]
	if first := stripped[0]; first >= utf8.RuneSelf {
		if u, _ := utf8.DecodeRune(stripped); s.tables.char(u)&bulletChar != 0 {
			s.c[client.BulletLines]++
		}
	}
	switch stripped[len(stripped)-1] {
	case '.', '?', '!', '"', '\'':
		s.c[client.EndmarkLines]++
	}
	if endsInEllipsis(stripped) {
		s.c[client.EllipsisLines]++
	}
	if p.last == p.end && s.isTerminal(stripped) {
		s.c[client.TerminalLines]++
	}
}

// endsInEllipsis reports whether a line ends with one of Marks or of ReadMore.
func endsInEllipsis(line []byte) bool {
	const lastOf2026, lastOf00BB = 0xA6, 0xBB
	suffix := func(s string) bool { return len(line) >= len(s) && string(line[len(line)-len(s):]) == s }
	switch line[len(line)-1] {
	case '.':
		return suffix("...") || endsInReadMore(line, "read more..")
	case 'e', 'E':
		return endsInReadMore(line, "read more")
	case ']':
		return suffix("[...]") || suffix("[\u2026]")
	case ')':
		return suffix("(...)")
	case lastOf2026:
		return suffix("\u2026")
	case lastOf00BB:
		return suffix("-\u00BB")
	}
	return false
}

// endsInReadMore reports whether a line ends with a text of lower-case letters, ignoring case. The text must not contain a k.
func endsInReadMore(line []byte, text string) bool {
	if len(line) < len(text) {
		return false
	}
	for i, b := range line[len(line)-len(text):] {
		if lower(b) != text[i] {
			return false
		}
	}
	return true
}

// isTerminal reports whether the last character of a line is in Terminal.
func (s *scan) isTerminal(line []byte) bool {
	switch last := line[len(line)-1]; {
	case last == '!' || last == '.' || last == '?':
		return true
	case last < utf8.RuneSelf:
		return false
	}
	u, _ := utf8.DecodeLastRune(line)
	return s.tables.char(u)&terminalChar != 0
}

// countPythonLines counts the lines of str.splitlines in a piece. isLast is true for the piece after the last newline.
func (s *scan) countPythonLines(p piece, isLast bool) {
	line := s.text[p.start:p.end]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1] // \r\n is one line end, and so is \r at the end of the text
		isLast = false
	}
	if isLast && len(line) == 0 {
		return
	}
	if !p.hasLineEnd {
		s.countPythonLine(s.text[p.first:p.last])
		return
	}
	for {
		end, next := s.lineEnd(line)
		if end < 0 {
			break
		}
		s.countPythonLine(s.strip(line[:end]))
		line = line[next:]
	}
	if len(line) > 0 || !isLast {
		s.countPythonLine(s.strip(line))
	}
}

// lineEnd returns the start and the end of the first line end of str.splitlines, or -1. A newline isn't a line end here.
func (s *scan) lineEnd(line []byte) (start, end int) {
	for i := 0; i < len(line); {
		b := line[i]
		if b < utf8.RuneSelf {
			i++
			if s.tables.bytes[b]&lineEndByte != 0 {
				return i - 1, i
			}
			continue
		}
		u, size := utf8.DecodeRune(line[i:])
		i += size
		if s.tables.char(u)&lineEndChar != 0 {
			return i - size, i
		}
	}
	return -1, 0
}

// countPythonLine counts a line without the spaces at its ends.
func (s *scan) countPythonLine(stripped []byte) {
	const bullet, ellipsis = "\u2022", "\u2026"
	s.c[client.DtLines]++
	if len(stripped) == 0 {
		return
	}
	if stripped[0] == '-' || bytes.HasPrefix(stripped, []byte(bullet)) {
		s.c[client.DtBulletLines]++
	}
	if bytes.HasSuffix(stripped, []byte("...")) || bytes.HasSuffix(stripped, []byte(ellipsis)) {
		s.c[client.DtEllipsisLines]++
	}
}

// isSpace reports whether a code point is a space.
func (s *scan) isSpace(u rune) bool {
	if u < utf8.RuneSelf {
		return s.tables.bytes[u]&spaceByte != 0
	}
	return s.tables.char(u)&spaceChar != 0
}

// strip returns a text without the spaces at its ends.
func (s *scan) strip(text []byte) []byte {
	for len(text) > 0 {
		u, size := utf8.DecodeRune(text)
		if !s.isSpace(u) {
			break
		}
		text = text[size:]
	}
	for len(text) > 0 {
		u, size := utf8.DecodeLastRune(text)
		if !s.isSpace(u) {
			break
		}
		text = text[:len(text)-size]
	}
	return text
}
