package jsonfield

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/bits"
)

// MaxDepth is the maximum nesting depth of objects and arrays.
const MaxDepth = 64

// level is an open object or array of the record.
type level struct {
	array bool
	start int    // position of its first byte
	looks uint64 // needles whose names lead to this object; bit i stands for needle i
	ends  uint64 // needles whose value is this object or array
}

// Scan validates record and finds the selector's paths. m has the result if record is valid.
func (s *Selector) Scan(record []byte, m *Match) Fault {
	end, fault := s.ScanValue(record, 0, m)
	if !fault.IsZero() {
		return fault
	}
	if end = skipSpace(record, end); end < len(record) {
		return Fault{Offset: end, Text: "text follows the value"}
	}
	return Fault{}
}

// ScanValue scans the value that begins at pos, possibly after white space, and returns the position of its end. Positions
// are relative to text.
func (s *Selector) ScanValue(text []byte, pos int, m *Match) (end int, fault Fault) {
	clear(m.found[:len(s.needles)])
	looks := uint64(1)<<len(s.needles) - 1
	pos = skipSpace(text, pos)
	m.Object = pos < len(text) && text[pos] == '{'
	c := scan{text: text, pos: pos, needles: s.needles, match: m}
	if fault = c.value(looks, 0); fault.IsZero() {
		m.collect(s)
	}
	return c.pos, fault
}

// scan is the state of one scan.
type scan struct {
	text    []byte
	pos     int
	depth   int // number of open levels
	needles []needle
	match   *Match
}

// value reads a whole value. looks are the needles that look into the value, and ends are the needles that end at the value.
func (c *scan) value(looks, ends uint64) Fault {
	for {
		opened, fault := c.begin(looks, ends)
		if !fault.IsZero() {
			return fault
		}
		if !opened {
			if fault = c.closeLevels(); !fault.IsZero() || c.depth == 0 {
				return fault
			}
		}
		if looks, ends, fault = c.next(); !fault.IsZero() {
			return fault
		}
	}
}

// begin reads a whole value, or only the beginning of an object or array that isn't empty. opened reports the second case.
func (c *scan) begin(looks, ends uint64) (opened bool, fault Fault) {
	start := c.pos
	if start >= len(c.text) {
		return false, c.ended()
	}
	switch b := c.text[start]; b {
	case '"':
		c.pos, fault = skipString(c.text, start+1)
	case '{', '[':
		return c.open(b == '[', looks, ends)
	case 't':
		fault = c.literal("true")
	case 'f':
		fault = c.literal("false")
	case 'n':
		fault = c.literal("null")
	default:
		c.pos, fault = skipNumber(c.text, start)
	}
	if ends != 0 && fault.IsZero() {
		c.found(ends, Span{start, c.pos})
	}
	return false, fault
}

// open begins an object or an array. If it is empty, open also ends it and returns false.
func (c *scan) open(array bool, looks, ends uint64) (opened bool, fault Fault) {
	start := c.pos
	c.pos = skipSpace(c.text, start+1)
	last := byte('}')
	if array {
		last, looks = ']', 0
	}
	switch {
	case c.depth == MaxDepth:
		return false, Fault{Offset: start, Text: "values nest deeper than 64", Soft: true}
	case c.pos < len(c.text) && c.text[c.pos] == last:
		c.pos++
		c.found(ends, Span{start, c.pos})
		return false, Fault{}
	}
	c.depth++
	c.match.levels[c.depth] = level{array: array, start: start, looks: looks, ends: ends}
	return true, Fault{}
}

// closeLevels reads the bytes after a value: the comma before the next value, or the ends of objects and arrays.
func (c *scan) closeLevels() Fault {
	for c.depth > 0 {
		l := &c.match.levels[c.depth]
		c.pos = skipSpace(c.text, c.pos)
		if c.pos >= len(c.text) {
			return c.ended()
		}
		b := c.text[c.pos]
		if b == ',' {
			c.pos = skipSpace(c.text, c.pos+1)
			return Fault{}
		}
		switch {
		case l.array && b != ']':
			return Fault{Offset: c.pos, Text: "a comma or ] is missing"}
		case !l.array && b != '}':
			return Fault{Offset: c.pos, Text: "a comma or } is missing"}
		}
		c.pos++
		if l.ends != 0 {
			c.found(l.ends, Span{l.start, c.pos})
		}
		c.depth--
	}
	return Fault{}
}

// next reads the name of the next member, if the open level is an object. It returns the needles for its value.
func (c *scan) next() (looks, ends uint64, fault Fault) {
	l := &c.match.levels[c.depth]
	if l.array {
		return 0, 0, Fault{}
	}
	if c.pos >= len(c.text) {
		return 0, 0, c.ended()
	}
	if c.text[c.pos] != '"' {
		return 0, 0, Fault{Offset: c.pos, Text: "the name of a member is missing"}
	}
	start := c.pos + 1
	if c.pos, fault = skipString(c.text, start); !fault.IsZero() {
		return 0, 0, fault
	}
	if l.looks != 0 {
		looks, ends = c.lookup(c.text[start:c.pos-1], l.looks)
	}
	c.pos = skipSpace(c.text, c.pos)
	if c.pos >= len(c.text) {
		return 0, 0, c.ended()
	}
	if c.text[c.pos] != ':' {
		return 0, 0, Fault{Offset: c.pos, Text: "the colon after a name is missing"}
	}
	c.pos = skipSpace(c.text, c.pos+1)
	return looks, ends, Fault{}
}

// lookup returns the needles that look into the member with the given name, and the needles whose value the member is. The member replaces
// an earlier member with the same name.
func (c *scan) lookup(name []byte, in uint64) (looks, ends uint64) {
	if hasEscape(name) {
		c.match.name = Append(c.match.name[:0], name)
		name = c.match.name
	}
	for ; in != 0; in &= in - 1 {
		i := bits.TrailingZeros64(in)
		names := c.needles[i].names
		if names[c.depth-1] != string(name) {
			continue
		}
		c.match.found[i] = Span{}
		if c.depth == len(names) {
			ends |= 1 << i
		} else {
			looks |= 1 << i
		}
	}
	return looks, ends
}

func (c *scan) found(needles uint64, s Span) {
	for ; needles != 0; needles &= needles - 1 {
		c.match.found[bits.TrailingZeros64(needles)] = s
	}
}

func (c *scan) ended() Fault { return Fault{Offset: len(c.text), Text: "the text ends too early"} }

func (c *scan) literal(word string) Fault {
	if len(c.text)-c.pos < len(word) || string(c.text[c.pos:c.pos+len(word)]) != word {
		return Fault{Offset: c.pos, Text: "no JSON value begins here"}
	}
	c.pos += len(word)
	return Fault{}
}

// skipSpace returns the position of the first byte from pos on that isn't white space.
func skipSpace(text []byte, pos int) int {
	for pos < len(text) && text[pos] <= ' ' && isSpace(text[pos]) {
		pos++
	}
	return pos
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// Blank returns the length of the white space at the start of text.
func Blank(text []byte) int { return skipSpace(text, 0) }

// SoftEnd returns the end of the value that begins at pos and has the soft fault. If encoding/json also rejects the value,
// SoftEnd returns the fault of encoding/json instead.
func SoftEnd(text []byte, pos int, soft Fault) (end int, fault Fault) {
	d := json.NewDecoder(bytes.NewReader(text[pos:]))
	var value json.RawMessage
	err := d.Decode(&value)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return pos + int(d.InputOffset()), soft
	case errors.As(err, &syntax):
		end = pos + int(syntax.Offset) - 1 // the offset includes the wrong byte
		return end, Fault{Offset: end, Text: err.Error()}
	}
	return len(text), Fault{Offset: len(text), Text: "the text ends too early"}
}

// IsBlank reports whether text has only white space.
func IsBlank(text []byte) bool { return skipSpace(text, 0) == len(text) }

// skipNumber returns the end of the number that begins at pos.
func skipNumber(text []byte, pos int) (end int, fault Fault) {
	i := pos
	if i < len(text) && text[i] == '-' {
		i++
	}
	switch {
	case i < len(text) && text[i] == '0':
		i++
	case i < len(text) && isDigit(text[i]):
		i = skipDigits(text, i)
	case i > pos:
		return i, Fault{Offset: i, Text: "a digit is missing"}
	default:
		return i, Fault{Offset: i, Text: "no JSON value begins here"}
	}
	if i < len(text) && text[i] == '.' {
		if i = skipDigits(text, i+1); !isDigit(text[i-1]) {
			return i, Fault{Offset: i, Text: "a digit is missing"}
		}
	}
	if i < len(text) && text[i]|0x20 == 'e' {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		if i = skipDigits(text, i); !isDigit(text[i-1]) {
			return i, Fault{Offset: i, Text: "a digit is missing"}
		}
	}
	return i, Fault{}
}

func isDigit(b byte) bool { return b-'0' <= 9 }

func skipDigits(text []byte, pos int) int {
	for pos < len(text) && isDigit(text[pos]) {
		pos++
	}
	return pos
}
