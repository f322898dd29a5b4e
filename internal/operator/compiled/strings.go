package compiled

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"
)

// This file is about byte strings. The value of a record is its record of Stride bytes, which has the lengths of its byte strings, and then
// the byte strings back to back, in order of declaration.

// AppendStrings appends the byte strings of record i, back to back. It appends nothing for one whose length exceeds its slot.
func (o *Operator) AppendStrings(dst []byte, offsets []uint32, result []byte, i int) []byte {
	rows := len(offsets) - 1
	at := o.Layout(rows, int(offsets[rows])).Strings
	for k, f := range o.description.Fields {
		if f.Type != Bytes {
			continue
		}
		slot := at + f.MostBytes*i + f.MostPerByte*int(offsets[i])
		if length := o.stringBytes(result, k, i); length <= f.slot(offsets, i) {
			dst = append(dst, result[slot:slot+length]...)
		}
		at += f.MostBytes*rows + f.MostPerByte*int(offsets[rows])
	}
	return dst
}

// AppendValue appends the value of record i: its record, and then its byte strings.
func (o *Operator) AppendValue(dst []byte, offsets []uint32, result []byte, i int) []byte {
	return o.AppendStrings(append(dst, result[i*o.stride:(i+1)*o.stride]...), offsets, result, i)
}

// MostStrings returns the bound of a record's byte strings together: most + perByte times the length of the payload.
func (o *Operator) MostStrings() (most, perByte int) {
	for _, f := range o.description.Fields {
		most += f.MostBytes
		perByte += f.MostPerByte
	}
	return most, perByte
}

// HasStrings reports whether the operator's results have byte strings.
func (o *Operator) HasStrings() bool {
	for _, f := range o.description.Fields {
		if f.Type == Bytes {
			return true
		}
	}
	return false
}

// cutString returns the byte string whose length is in a record, and the rest of the byte strings. A value that was changed on its way may
// have fewer bytes than that.
func cutString(length, strings []byte) (text, rest []byte) {
	n := min(uint64(binary.LittleEndian.Uint32(length)), uint64(len(strings)))
	return strings[:n], strings[n:]
}

const (
	// base64Begin and base64End enclose a byte string that isn't text.
	base64Begin, base64End = `{"base64":"`, `"}`

	// mostStringJSON is the maximum number of bytes that a byte string has in JSON in addition to two for each of its bytes: base64 has 4 for
	// one byte and 8 for four, and hexadecimal digits and text have quotes.
	mostStringJSON = len(base64Begin) + len(base64End) + 2
)

// appendString appends a byte string: text as a JSON string, and anything else as an object with its base64 (RFC 4648, with padding).
func appendString(dst, text []byte) []byte {
	if isText(text) {
		return append(appendQuoted(append(dst, '"'), text), '"')
	}
	dst = append(dst, base64Begin...)
	dst = base64.StdEncoding.AppendEncode(dst, text)
	return append(dst, base64End...)
}

// isText reports whether a byte string is UTF-8 without control characters other than tab, LF and CR.
func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return utf8.Valid(b)
}

// appendQuoted appends text as the contents of a JSON string.
func appendQuoted(dst, text []byte) []byte {
	for _, c := range text {
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\t':
			dst = append(dst, '\\', 't')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
