package operator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/arrowipc"
)

// Format is the format of a result message's body. docs/results.md specifies the formats. Format writes the result of a message with one
// record. Package table writes the results of messages with several records.
type Format uint8

const (
	JSON      Format = iota // one compact object with keys in operator order
	Binary                  // fixed little-endian layout; see client.Decode
	Arrow                   // Arrow IPC stream with one row per record; see package arrowipc
	Annotated               // the record itself, a JSON object, with an additional member for the result; only package table writes it
)

// formats holds the values of MILLRACE_RESULT_FORMAT, indexed by Format.
var formats = [...]string{"json", "binary", "arrow", "annotated"}

// UnmarshalText parses a value of MILLRACE_RESULT_FORMAT.
func (f *Format) UnmarshalText(name []byte) error {
	i := slices.Index(formats[:], string(name))
	if i < 0 {
		return fmt.Errorf("unknown result format %q: known are %s", name, strings.Join(formats[:], ", "))
	}
	*f = Format(i)
	return nil
}

// IsJSON reports whether results are JSON objects.
func (f Format) IsJSON() bool { return f == JSON || f == Annotated }

// String returns the name that UnmarshalText parses.
func (f Format) String() string {
	if int(f) < len(formats) {
		return formats[f]
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Append appends the body of one result message to dst and returns the extended slice. The body contains the payload's length in bytes
// and a value for each operator. records[i] is the value of ops[i], as described for Variable. For JSON and Binary, Append allocates
// only to grow dst. It panics if the numbers of records and operators differ, or if f isn't valid.
func (f Format) Append(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	if len(ops) != len(records) || payloadBytes < 0 {
		panic(fmt.Sprintf("operator: %d records of %d operators for a payload of %d bytes", len(records), len(ops), payloadBytes))
	}
	switch f {
	case JSON:
		return appendJSON(dst, ops, payloadBytes, records)
	case Binary:
		return appendBinary(dst, ops, payloadBytes, records)
	case Arrow:
		return appendArrow(dst, ops, payloadBytes, records)
	}
	panic("operator: no such format: " + f.String())
}

// maxNumber is the maximum number of digits of a payload length.
const maxNumber = 19

// MaxBytes returns the maximum number of bytes that Append appends for one payload. stringBytes is the maximum total length of its byte
// strings; see StringBytes. The worker reserves this memory before it computes the result. MaxBytes panics if f isn't valid.
func (f Format) MaxBytes(ops []Operator, stringBytes int) int {
	switch f {
	case JSON, Annotated:
		limit := len(`{"bytes":}`) + maxNumber + stringJSON*stringBytes
		for _, op := range ops {
			limit += len(`,"":`) + len(op.Name()) + op.MaxJSON()
		}
		return limit
	case Binary:
		limit := binaryHeaderBytes + stringBytes
		for _, op := range ops {
			spec, record := len(op.String()), op.Stride()
			limit += resultHeaderBytes + spec + padding(spec) + record + padding(record)
			if _, ok := op.(Variable); ok {
				limit += maxPositions
			}
		}
		return limit
	case Arrow:
		return arrowipc.MaxBytes(ArrowColumns(ops), 1, stringBytes)
	}
	panic("operator: no such format: " + f.String())
}

// appendJSON appends a JSON result. It escapes nothing, because operator names consist of lower-case letters, digits
// and underscores.
func appendJSON(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	dst = append(dst, `{"bytes":`...)
	dst = strconv.AppendInt(dst, int64(payloadBytes), 10)
	return AppendJSON(dst, ops, records)
}

// AppendJSON appends the end of a JSON result: a member for each operator, each after a comma, and the closing brace.
func AppendJSON(dst []byte, ops []Operator, records [][]byte) []byte {
	for i, op := range ops {
		dst = append(dst, `,"`...)
		dst = append(dst, op.Name()...)
		dst = append(dst, `":`...)
		dst = op.AppendJSON(dst, records[i])
	}
	return append(dst, '}')
}

// This is version 1 of the binary format, which client.Decode reads. Numbers are unsigned and little-endian. Every field starts at a
// multiple of 4 bytes.
const (
	binaryMagic       = "MILL"
	binaryVersion     = 1
	binaryHeaderBytes = 16 // magic, uint16 version, uint16 results, uint64 payload bytes
	resultHeaderBytes = 8  // uint32 spec bytes, uint32 record bytes; then the spec and the record, each padded
	binaryAlignment   = 4
)

func appendBinary(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	dst = append(dst, binaryMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, binaryVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(ops)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(payloadBytes))
	for i, op := range ops {
		spec, length, record, strings := op.String(), uint32(op.Stride()), records[i], []byte(nil)
		_, variable := op.(Variable)
		if variable {
			length |= StringsFollow
			record, strings = record[:op.Stride()], record[op.Stride():]
		}
		record = fixed(record, op.Stride())
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(spec)))
		dst = binary.LittleEndian.AppendUint32(dst, length)
		dst = append(dst, spec...)
		dst = appendPadding(dst, len(spec))
		dst = append(dst, record...)
		dst = appendPadding(dst, len(record))
		if variable {
			dst = appendStrings(dst, strings)
		}
	}
	return dst
}

// padding returns the number of zero bytes that follow a field of n bytes.
func padding(n int) int { return -n & (binaryAlignment - 1) }

func appendPadding(dst []byte, n int) []byte {
	return append(dst, "\x00\x00\x00"[:padding(n)]...)
}

// StringsFollow is a flag in the length of an operator's record in a binary result. It means that the operator's byte strings
// follow its record.
const StringsFollow = 1 << 31

// maxPositions is the maximum number of additional bytes of a binary result with byte strings: two positions and padding.
const maxPositions = 2*4 + binaryAlignment - 1

// appendStrings appends the byte strings of one record as in a binary result: their start and end, then their bytes.
func appendStrings(dst, strings []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(strings)))
	return appendPadding(append(dst, strings...), len(strings))
}

// Check compares body with the result message that the reference implementation computes for a payload. The error contains the position of
// the first difference.
func (f Format) Check(ops []Operator, payload, body []byte) error {
	records := make([][]byte, len(ops))
	for i, op := range ops {
		records[i] = op.AppendReference(make([]byte, 0, op.Stride()), payload)
	}
	return Compare(body, f.Append(nil, ops, len(payload), records))
}

// Compare returns an error that describes the first difference between got and want, with some context, or nil if they are equal.
func Compare(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%d bytes, want %d; byte %d differs: got %s, want %s", len(got), len(want), at, around(got, at), around(want, at))
}

// around returns at most 40 bytes of text near position `at`, in quotes.
func around(text []byte, at int) string {
	const before, behind = 12, 28
	from, to := max(at-before, 0), min(at+behind, len(text))
	return strconv.Quote(string(text[from:to]))
}
