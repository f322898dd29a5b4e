package compiled

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendJSON appends the compact JSON value of one record. The value is an object with the shown parameters and then the fields, in
// order of declaration. The value of an operator with a bare field is that field's value.
//
// Integers are decimal. Floating-point numbers have the fewest digits that a parser converts to the same number. Infinities and NaN
// are null. Hexadecimal fields are strings of lower-case digits. A hexadecimal integer has two digits for each of its bytes, the
// most significant byte first. A hexadecimal array of uint8 is one string with its bytes in order. A byte string for which isText
// is true is a JSON string. Any other byte string is an object with its base64, {"base64":"AP8="}.
//
// AppendJSON panics if value has fewer than Stride bytes, or if it has more and the operator has no byte strings.
func (o *Operator) AppendJSON(dst, value []byte) []byte {
	if len(value) != o.stride && (len(value) < o.stride || !o.HasStrings()) {
		panic(fmt.Sprintf("compiled: a value of %s has %d bytes, want %d", o.spec, len(value), o.stride))
	}
	if f := &o.fields[0]; f.BareJSON && f.Type != Bytes {
		return f.appendNumbers(dst, value[:f.Type.Size()*o.places[0].count])
	}
	record, strings := value[:o.stride], value[o.stride:]
	for i := range o.places {
		dst = append(dst, o.places[i].before...)
		dst, strings = o.appendField(dst, i, record, strings)
	}
	return append(dst, o.after...)
}

// bindJSON sets the JSON text before and after the fields, which is the same for each record.
func (o *Operator) bindJSON() {
	d := o.description
	if o.fields[0].BareJSON {
		return
	}
	before := []byte{'{'}
	for i, p := range d.Parameters {
		if p.Shown {
			before = append(append(appendKey(before, p.Name), p.json(o.values[i])...), ',')
		}
	}
	for i, f := range o.fields {
		o.places[i].before = string(appendKey(before, f.Name))
		before = []byte{','}
	}
	o.after = "}"
}

// appendKey appends a JSON key. It escapes nothing, because names consist of letters, digits and underscores.
func appendKey(dst []byte, name string) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, `":`...)
}

// json returns the JSON value of a parameter. The parameter's bounds may permit infinities.
func (p Parameter) json(n Number) string {
	if p.Type.float() {
		return string(appendFloat(nil, n.Float(), 8*p.Type.Size()))
	}
	return p.format(n)
}

// appendField appends field i. strings begins with the next byte string. rest is strings after the byte string of this field.
func (o *Operator) appendField(dst []byte, i int, record, strings []byte) (extended, rest []byte) {
	f, place := &o.fields[i], &o.places[i]
	if f.Type == Uint32 && !f.Hex && !f.Array { // the counters of quality: the general code takes 1.4 times as long
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(record[place.at:])), 10), strings
	}
	data := record[place.at : place.at+f.Type.Size()*place.count]
	if f.Type != Bytes {
		return f.appendNumbers(dst, data), strings
	}
	text, rest := cutString(data, strings)
	if f.Hex {
		return appendHex(dst, text), rest
	}
	return appendString(dst, text), rest
}

// appendNumbers appends a number or an array.
func (f *Field) appendNumbers(dst, data []byte) []byte {
	switch {
	case !f.Array:
		return f.appendNumber(dst, data)
	case f.Type == Uint8 && f.Hex:
		return appendHex(dst, data)
	}
	size := f.Type.Size()
	dst = append(dst, '[')
	if f.Type == Uint32 && !f.Hex { // signature of minhash: this loop takes four fifths of the time of the next loop
		for ; len(data) >= 4; data = data[4:] {
			dst = strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data)), 10)
			dst = append(dst, ',')
		}
	}
	for ; len(data) > 0; data = data[size:] {
		dst = f.appendNumber(dst, data[:size])
		dst = append(dst, ',')
	}
	dst[len(dst)-1] = ']' // an array has at least one element, so there is a trailing comma
	return dst
}

func appendHex(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = hex.AppendEncode(dst, data)
	return append(dst, '"')
}

// appendHexNumber appends the digits of a little-endian number, in quotes.
func appendHexNumber(dst, data []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := len(data) - 1; i >= 0; i-- {
		dst = append(dst, digits[data[i]>>4], digits[data[i]&15])
	}
	return append(dst, '"')
}

func (f *Field) appendNumber(dst, data []byte) []byte {
	if f.Hex {
		return appendHexNumber(dst, data)
	}
	n := f.Type.Number(data)
	switch {
	case f.Type.float():
		return appendFloat(dst, n.Float(), 8*len(data))
	case f.Type.isSigned():
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return strconv.AppendUint(dst, uint64(n), 10)
}

// appendFloat appends a number in the format of encoding/json, and null for a number that JSON can't represent. bits is the size of
// the number's type, 32 or 64.
func appendFloat(dst []byte, value float64, bits int) []byte {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if size := math.Abs(value); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, value, format, -1, bits)
}

// maxDigits is the maximum length of a number in JSON, by type.
var maxDigits = [...]int{
	Uint8: 3, Uint16: 5, Uint32: 10, Uint64: 20, Int8: 4, Int16: 6, Int32: 11, Int64: 20,
	Float32: 24, Float64: 25, // "-0.0000012345679", "-123456790000000000000", "-1.7976931348623157e+308"
}

// MaxJSON returns the maximum number of bytes that AppendJSON appends for a payload of payloadBytes bytes.
func (o *Operator) MaxJSON(payloadBytes int) int {
	limit := len(o.after)
	for i, f := range o.fields {
		limit += len(o.places[i].before) + f.maxJSON(o.places[i].count, payloadBytes)
	}
	return limit
}

func (f Field) maxJSON(count, payloadBytes int) int {
	const quotes, brackets = 2, 2
	if f.Type == Bytes {
		return maxStringJSON + 2*(f.MaxBytes+f.MaxPerByte*payloadBytes)
	}
	number := maxDigits[f.Type]
	if f.Hex {
		number = quotes + 2*f.Type.Size()
	}
	if !f.Array {
		return number
	}
	return brackets + count*(number+len(","))
}

// cutString returns the first byte string in strings, and the remaining byte strings. length is the field of the record that
// contains the byte string's length. A damaged value may have fewer bytes than that length.
func cutString(length, strings []byte) (text, rest []byte) {
	n := min(uint64(binary.LittleEndian.Uint32(length)), uint64(len(strings)))
	return strings[:n], strings[n:]
}

const (
	// base64Begin and base64End enclose a byte string that isn't text.
	base64Begin, base64End = `{"base64":"`, `"}`

	// maxStringJSON is the maximum number of bytes that a byte string in JSON has in addition to two for each of its bytes. Base64 needs
	// at most two more, because it encodes one byte as 4 characters. Hexadecimal digits and text need two quotes.
	maxStringJSON = len(base64Begin) + len(base64End) + 2
)

// appendString appends a byte string to dst. Text becomes a JSON string. Any other byte string becomes an object with its base64 (RFC
// 4648, with padding).
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
