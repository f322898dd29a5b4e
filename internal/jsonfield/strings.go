package jsonfield

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// In each of these words, all bytes have the same value, so that code can compare eight bytes at once.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// specials returns a word whose lowest set bit belongs to the first byte of w that is a quote, a backslash or a control
// character. It returns 0 if w has no such byte. The bits of later bytes may be wrong.
func specials(w uint64) uint64 {
	quotes := w ^ 0x02*ones // the bytes below 0x21 are now quotes and control characters
	slashes := w ^ '\\'*ones
	return ((quotes-0x21*ones)&^quotes | (slashes-ones)&^slashes) & highs
}

// skipString returns the position after the quote that ends a string. pos is the position of the string's first character.
func skipString(text []byte, pos int) (end int, fault Fault) {
	high := uint64(0) // not 0 if there are bytes outside of ASCII
	i := pos
	for {
		n, outside := plainLength(text[i:])
		i += n
		high |= outside
		if i >= len(text) {
			return i, Fault{Offset: len(text), Text: "the text ends within a string"}
		}
		switch b := text[i]; {
		case b == '"':
			if high != 0 && !isUTF8(text[pos:i]) {
				return i, Fault{Offset: pos + validPrefix(text[pos:i]), Text: "a string isn't valid UTF-8", Soft: true}
			}
			return i + 1, Fault{}
		case b == '\\':
			n := escapeLength(text[i:])
			if n == 0 {
				return i, Fault{Offset: i, Text: "a string has an invalid escape"}
			}
			i += n
		default:
			return i, Fault{Offset: i, Text: "a string has a control character that isn't escaped"}
		}
	}
}

// plainLength returns the number of bytes before the first quote, backslash or control character. high isn't 0 if one of these
// bytes is outside of ASCII.
func plainLength(text []byte) (n int, high uint64) {
	for len(text)-n >= 16 {
		w, v := binary.LittleEndian.Uint64(text[n:]), binary.LittleEndian.Uint64(text[n+8:])
		if found := specials(w); found != 0 {
			return n + bits.TrailingZeros64(found)/8, high | w&highs&(found-1)&^found
		}
		high |= w & highs
		if found := specials(v); found != 0 {
			return n + 8 + bits.TrailingZeros64(found)/8, high | v&highs&(found-1)&^found
		}
		high |= v & highs
		n += 16
	}
	for ; n < len(text); n++ {
		b := text[n]
		if b < ' ' || b == '"' || b == '\\' {
			break
		}
		high |= uint64(b) & 0x80
	}
	return n, high
}

// validPrefix returns the length of the longest prefix of text that is valid UTF-8.
func validPrefix(text []byte) (n int) {
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// escapeLength returns the length of the escape at the start of text. It returns 0 if the escape is invalid.
func escapeLength(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != 'u' {
		if unescaped[text[1]] == 0 {
			return 0
		}
		return 2
	}
	if hex4(text) < 0 {
		return 0
	}
	return 6
}

// unescaped maps the character after a backslash to the character that the escape represents. Invalid characters map to 0.
var unescaped = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// hex4 returns the number in an escape such as \u00e9 at the start of text, or -1 if it isn't valid.
func hex4(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n := rune(0)
	for _, b := range text[2:6] {
		switch {
		case isDigit(b):
			b -= '0'
		case b|0x20 >= 'a' && b|0x20 <= 'f':
			b = b | 0x20 - 'a' + 10
		default:
			return -1
		}
		n = n<<4 | rune(b)
	}
	return n
}

func hasEscape(content []byte) bool { return bytes.IndexByte(content, '\\') >= 0 }

// Append appends the characters of a valid string to dst. content is the string's text without the quotes. The result is
// never longer than content. A surrogate without its other half becomes U+FFFD.
func Append(dst, content []byte) []byte {
	for {
		n := bytes.IndexByte(content, '\\')
		if n < 0 {
			return append(dst, content...)
		}
		dst = append(dst, content[:n]...)
		content = content[n:]
		for len(content) > 0 && content[0] == '\\' {
			dst, content = appendEscape(dst, content)
		}
	}
}

// appendEscape appends the character of the escape at the start of content, and returns the rest of content.
func appendEscape(dst, content []byte) (appended, rest []byte) {
	if content[1] != 'u' {
		return append(dst, unescaped[content[1]]), content[2:]
	}
	r := hex4(content)
	content = content[6:]
	if utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(r, hex4(content)); pair != utf8.RuneError {
			return utf8.AppendRune(dst, pair), content[6:]
		}
		r = utf8.RuneError
	}
	return utf8.AppendRune(dst, r), content
}

// AppendQuoted appends text as a JSON string. Bytes that aren't valid UTF-8 become U+FFFD.
func AppendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for len(text) > 0 {
		n := 0
		for n < len(text) && text[n] >= ' ' && text[n] < utf8.RuneSelf && text[n] != '"' && text[n] != '\\' {
			n++
		}
		dst, text = append(dst, text[:n]...), text[n:]
		if len(text) == 0 {
			break
		}
		if b := text[0]; b < utf8.RuneSelf {
			if b < ' ' {
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
			} else {
				dst = append(dst, '\\', b)
			}
			text = text[1:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		dst, text = utf8.AppendRune(dst, r), text[size:]
	}
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// IsString reports whether the JSON text of a value is a string.
func IsString(value []byte) bool { return len(value) > 0 && value[0] == '"' }
