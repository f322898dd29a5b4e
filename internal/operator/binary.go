package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// This file implements version 1 of the binary format. Numbers are unsigned and little-endian. Every field starts at a
// multiple of 4 bytes.
const (
	binaryMagic       = "MILL"
	binaryVersion     = 1
	binaryHeaderBytes = 16 // magic, uint16 version, uint16 results, uint64 payload bytes
	resultHeaderBytes = 8  // uint32 spec bytes, uint32 record bytes; then the spec and the record, each padded
	binaryAlignment   = 4
)

// Message is a decoded result message.
type Message struct {
	PayloadBytes uint64
	Results      []Result
}

// Result is one operator's part of a result message.
type Result struct {
	Spec   string // the operator with its parameters, as returned by Operator.String
	Record []byte // the operator's record, a slice of the message
}

func appendBinary(dst []byte, ops []Operator, payloadBytes int, records [][]byte) []byte {
	dst = append(dst, binaryMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, binaryVersion)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(ops)))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(payloadBytes))
	for i, op := range ops {
		spec, record := op.String(), fixed(records[i], op.Stride())
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(spec)))
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(record)))
		dst = append(dst, spec...)
		dst = appendPadding(dst, len(spec))
		dst = append(dst, record...)
		dst = appendPadding(dst, len(record))
	}
	return dst
}

// DecodeBinary decodes a message body in the format Binary. It accepts results of any operator, whether this program
// knows it or not. Bytes after the last result and nonzero padding are errors.
func DecodeBinary(body []byte) (Message, error) {
	if len(body) < binaryHeaderBytes || string(body[:4]) != binaryMagic {
		return Message{}, fmt.Errorf("not a binary result: it must start with %q and have at least %d bytes", binaryMagic, binaryHeaderBytes)
	}
	if version := binary.LittleEndian.Uint16(body[4:]); version != binaryVersion {
		return Message{}, fmt.Errorf("binary result of version %d: this program reads version %d", version, binaryVersion)
	}
	var (
		message = Message{PayloadBytes: binary.LittleEndian.Uint64(body[8:])}
		results = int(binary.LittleEndian.Uint16(body[6:]))
		rest    = body[binaryHeaderBytes:]
	)
	for i := range results {
		result, behind, err := decodeResult(rest)
		if err != nil {
			return Message{}, fmt.Errorf("binary result, operator %d of %d at byte %d: %w", i+1, results, len(body)-len(rest), err)
		}
		message.Results = append(message.Results, result)
		rest = behind
	}
	if len(rest) > 0 {
		return Message{}, fmt.Errorf("binary result: %d extra bytes at the end", len(rest))
	}
	return message, nil
}

func decodeResult(data []byte) (result Result, rest []byte, err error) {
	if len(data) < resultHeaderBytes {
		return Result{}, nil, errors.New("truncated in its length fields")
	}
	specBytes, recordBytes := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
	spec, rest, err := cutPadded(data[resultHeaderBytes:], specBytes)
	if err != nil {
		return Result{}, nil, fmt.Errorf("spec: %w", err)
	}
	record, rest, err := cutPadded(rest, recordBytes)
	if err != nil {
		return Result{}, nil, fmt.Errorf("record: %w", err)
	}
	return Result{Spec: string(spec), Record: record}, rest, nil
}

// cutPadded splits a field of n bytes and its padding off data.
func cutPadded(data []byte, n uint32) (field, rest []byte, err error) {
	padded := uint64(n) + uint64(padding(int(n)))
	if padded > uint64(len(data)) {
		return nil, nil, fmt.Errorf("truncated: %d of %d bytes", len(data), padded)
	}
	for _, b := range data[n:padded] {
		if b != 0 {
			return nil, nil, errors.New("padding is not zero")
		}
	}
	return data[:n:n], data[padded:], nil
}

// padding returns the number of zero bytes that follow a field of n bytes.
func padding(n int) int { return -n & (binaryAlignment - 1) }

func appendPadding(dst []byte, n int) []byte {
	return append(dst, "\x00\x00\x00"[:padding(n)]...)
}
