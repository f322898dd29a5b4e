package operator

import (
	"fmt"
	"strconv"

	"millrace/internal/arrowipc"
)

// Format is the format of a result message's body. docs/results.md specifies the formats. The methods here are for a message that is
// one record. Package table writes the results of a message that holds several records.
type Format uint8

const (
	JSON   Format = iota // one compact object with keys in operator order
	Binary               // fixed little-endian layout; see client.Decode
	Arrow                // Arrow IPC stream with one row per record; see package arrowipc
)

// ParseFormat parses "json", "binary" or "arrow".
func ParseFormat(name string) (Format, error) {
	for _, f := range []Format{JSON, Binary, Arrow} {
		if f.String() == name {
			return f, nil
		}
	}
	return 0, fmt.Errorf("unknown result format %q: known are %v, %v, %v", name, JSON, Binary, Arrow)
}

// String returns the name that ParseFormat accepts.
func (f Format) String() string {
	switch f {
	case JSON:
		return "json"
	case Binary:
		return "binary"
	case Arrow:
		return "arrow"
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// Append appends the body of one result message: the payload's length in bytes and its value for each operator, where
// records[i] belongs to ops[i]. See Variable for values. For JSON and Binary it allocates only to grow dst. It panics if the numbers of records and
// operators differ, or if f is not a valid format.
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

// Most returns the maximum number of bytes that Append appends for one payload with these operators, if its byte strings have that many
// bytes together; see StringBytes. The worker reserves that much memory for a result that has not been computed yet. Most panics if f is
// not a valid format.
func (f Format) Most(ops []Operator, stringBytes int) int {
	switch f {
	case JSON:
		most := len(`{"bytes":}`) + maxNumber + stringJSON*stringBytes
		for _, op := range ops {
			most += len(`,"":`) + len(op.Name()) + op.MostJSON()
		}
		return most
	case Binary:
		most := binaryHeaderBytes + stringBytes
		for _, op := range ops {
			spec, record := len(op.String()), op.Stride()
			most += resultHeaderBytes + spec + padding(spec) + record + padding(record)
			if _, ok := op.(Variable); ok {
				most += mostPositions
			}
		}
		return most
	case Arrow:
		return arrowipc.Most(ArrowColumns(ops), 1, stringBytes)
	}
	panic("operator: no such format: " + f.String())
}

// appendJSON doesn't quote names, because operator names consist of lower-case letters and digits.
func appendJSON(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	dst = append(dst, `{"bytes":`...)
	dst = strconv.AppendInt(dst, int64(payloadBytes), 10)
	for i, op := range ops {
		dst = append(dst, `,"`...)
		dst = append(dst, op.Name()...)
		dst = append(dst, `":`...)
		dst = op.AppendJSON(dst, records[i])
	}
	return append(dst, '}')
}
