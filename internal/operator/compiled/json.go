package compiled

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
)

// AppendJSON appends the compact JSON value of one record: an object with the parameters that are shown and then the fields, in order of
// declaration. The value of an operator with a bare field is that field's value.
//
// Integers are decimal. Floating-point numbers have the fewest digits that give the same number again; infinities and NaN are null.
// Hexadecimal fields are strings of lower-case digits: an integer has two digits for each of its bytes, most significant first, and an
// array of uint8 is one string with its bytes in order. A byte string that is text is a string; see isText. Any other is an object with
// its base64, {"base64":"AP8="}.
//
// AppendJSON panics if value has fewer than Stride bytes, or more and the operator has no byte strings.
func (o *Operator) AppendJSON(dst, value []byte) []byte {
	if len(value) != o.stride && (len(value) < o.stride || !o.HasStrings()) {
		panic(fmt.Sprintf("compiled: a value of %s has %d bytes, want %d", o.spec, len(value), o.stride))
	}
	record, strings := value[:o.stride], value[o.stride:]
	d := o.description
	if d.Fields[0].BareJSON {
		dst, _ = o.appendField(dst, 0, record, strings)
		return dst
	}
	separator := byte('{')
	for i, p := range d.Parameters {
		if p.Shown {
			dst = appendKey(dst, separator, p.Name)
			dst = append(dst, p.json(o.values[i])...)
			separator = ','
		}
	}
	for i, f := range d.Fields {
		dst = appendKey(dst, separator, f.Name)
		dst, strings = o.appendField(dst, i, record, strings)
		separator = ','
	}
	return append(dst, '}')
}

// appendKey doesn't quote names, because they consist of letters, digits and underscores.
func appendKey(dst []byte, separator byte, name string) []byte {
	dst = append(dst, separator, '"')
	dst = append(dst, name...)
	return append(dst, `":`...)
}

// json returns the value of a parameter. Bounds keep infinities out only if the operator's author wants that.
func (p Parameter) json(n Number) string {
	if p.Type.float() {
		return string(appendFloat(nil, n.Float(), 8*p.Type.Size()))
	}
	return p.format(n)
}

// appendField appends field i. strings begins with the next byte string; appendField returns what follows the field's own.
func (o *Operator) appendField(dst []byte, i int, record, strings []byte) (extended, rest []byte) {
	f, place := o.description.Fields[i], o.fields[i]
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
func (f Field) appendNumbers(dst, data []byte) []byte {
	size := f.Type.Size()
	switch {
	case f.Array && f.Type == Uint8 && f.Hex:
		return appendHex(dst, data)
	case !f.Array:
		return f.appendNumber(dst, data)
	}
	dst = append(dst, '[')
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

// appendNumber appends one element.
func (f Field) appendNumber(dst, data []byte) []byte {
	bits := unsignedBits(data)
	switch {
	case f.Hex:
		var bigEndian [8]byte
		binary.BigEndian.PutUint64(bigEndian[:], bits)
		return appendHex(dst, bigEndian[8-len(data):])
	case f.Type == Float32:
		return appendFloat(dst, float64(math.Float32frombits(uint32(bits))), 32)
	case f.Type == Float64:
		return appendFloat(dst, math.Float64frombits(bits), 64)
	case f.Type.signed():
		unused := 64 - 8*len(data)
		return strconv.AppendInt(dst, int64(bits)<<unused>>unused, 10)
	}
	return strconv.AppendUint(dst, bits, 10)
}

// appendFloat appends a number as encoding/json does, except that it appends null for numbers that JSON doesn't have.
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

// mostDigits is the maximum length of a number in JSON, by type.
var mostDigits = [...]int{
	Uint8: 3, Uint16: 5, Uint32: 10, Uint64: 20, Int8: 4, Int16: 6, Int32: 11, Int64: 20,
	Float32: 24, Float64: 25, // "-0.0000012345679", "-123456790000000000000", "-1.7976931348623157e+308"
}

// MostJSON returns the maximum number of bytes that AppendJSON appends for a record of a payload with that many bytes.
func (o *Operator) MostJSON(payloadBytes int) int {
	most := len("{}")
	for i, p := range o.description.Parameters {
		if p.Shown {
			most += len(`"":,`) + len(p.Name) + len(p.json(o.values[i]))
		}
	}
	for i, f := range o.description.Fields {
		most += len(`"":,`) + len(f.Name) + f.mostJSON(o.fields[i].count, payloadBytes)
	}
	return most
}

func (f Field) mostJSON(count, payloadBytes int) int {
	const quotes, brackets = 2, 2
	switch {
	case f.Type == Bytes:
		return mostStringJSON + 2*(f.MostBytes+f.MostPerByte*payloadBytes)
	case f.Hex:
		return brackets + count*(quotes+2*f.Type.Size()+len(","))
	}
	return brackets + count*(mostDigits[f.Type]+len(","))
}
