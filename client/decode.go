package client

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// All versions of the format use unsigned, little-endian numbers, and every field starts at a multiple of 4 bytes.
const (
	binaryMagic       = "MILL"
	binaryHeaderBytes = 16 // magic, uint16 version, uint16 operators, then 8 bytes that depend on the version
	operatorBytes     = 8  // uint32 spec bytes, uint32 value bytes
	binaryAlignment   = 4
)

// Decode decodes the body of a binary result, of version 1, 2 or 3. The Result refers to body. Decode checks every length before use.
// Bytes after the last value and nonzero padding are errors. An empty body is a result without records.
func Decode(body []byte) (*Result, error) {
	if len(body) == 0 {
		return new(Result), nil
	}
	if len(body) < binaryHeaderBytes || string(body[:4]) != binaryMagic {
		return nil, fmt.Errorf("not a binary result: it must start with %q and have at least %d bytes", binaryMagic, binaryHeaderBytes)
	}
	r := Result{Version: int(binary.LittleEndian.Uint16(body[4:]))}
	c := cursor{body: body, at: binaryHeaderBytes}
	operators := int(binary.LittleEndian.Uint16(body[6:]))
	var err error
	switch r.Version {
	case 1:
		r.PayloadBytes = binary.LittleEndian.Uint64(body[8:])
		err = r.decodeSingle(&c, operators)
	case 2, 3:
		r.FirstRecord = int(binary.LittleEndian.Uint32(body[12:]))
		err = r.decodeFrame(&c, operators, binary.LittleEndian.Uint32(body[8:]))
	default:
		return nil, fmt.Errorf("binary result of version %d: this program reads versions 1 to 3", r.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("binary result of version %d, %w", r.Version, err)
	}
	if rest := len(body) - c.at; rest > 0 {
		return nil, fmt.Errorf("binary result of version %d: %d extra bytes at the end", r.Version, rest)
	}
	return &r, nil
}

// decodeSingle decodes version 1: each operator's spec is followed by its value.
func (r *Result) decodeSingle(c *cursor, operators int) error {
	r.statuses = []byte{byte(OK)}
	for i := range operators {
		start := c.at
		value, err := r.decodeOperator(c)
		if err == nil {
			var column []byte
			column, err = c.field(uint64(value), "record")
			r.columns = append(r.columns, column)
		}
		if err == nil {
			err = r.decodeStrings(c, i)
		}
		if err != nil {
			return fmt.Errorf("operator %d of %d at byte %d: %w", i+1, operators, start, err)
		}
	}
	return nil
}

// decodeFrame decodes version 2: all operators, then the statuses, then all values of each operator. Version 3 also has the number of
// each record, after the statuses.
func (r *Result) decodeFrame(c *cursor, operators int, records uint32) (err error) {
	for i := range operators {
		start := c.at
		if _, err := r.decodeOperator(c); err != nil {
			return fmt.Errorf("operator %d of %d at byte %d: %w", i+1, operators, start, err)
		}
	}
	start := c.at
	if r.statuses, err = c.field(uint64(records), "statuses"); err != nil {
		return fmt.Errorf("%d records at byte %d: %w", records, start, err)
	}
	if r.Version == 3 {
		if err := r.decodeNumbers(c); err != nil {
			return err
		}
	}
	for i, o := range r.Operators {
		start := c.at
		column, err := c.field(uint64(records)*uint64(o.Stride), "values")
		if err != nil {
			return fmt.Errorf("operator %d of %d (%s) at byte %d: %w", i+1, operators, o.Name(), start, err)
		}
		r.columns = append(r.columns, column)
		if err := r.decodeStrings(c, i); err != nil {
			return fmt.Errorf("operator %d of %d (%s) at byte %d: %w", i+1, operators, o.Name(), start, err)
		}
		if record := r.firstNotZero(i); record >= 0 {
			return fmt.Errorf("operator %d of %d (%s) at byte %d: record %d is %v, but its value isn't zero",
				i+1, operators, o.Name(), start, record, Status(r.statuses[record]))
		}
	}
	return nil
}

// decodeNumbers decodes the numbers of the records, which must increase from FirstRecord on.
func (r *Result) decodeNumbers(c *cursor) error {
	start := c.at
	numbers, err := c.field(4*uint64(len(r.statuses)), "numbers of records")
	if err != nil {
		return fmt.Errorf("%d records at byte %d: %w", len(r.statuses), start, err)
	}
	for ; len(numbers) > 0; numbers = numbers[4:] {
		n := int(binary.LittleEndian.Uint32(numbers))
		if last := len(r.numbers) - 1; last < 0 && n != r.FirstRecord || last >= 0 && n <= r.numbers[last] {
			return fmt.Errorf("the numbers of the records at byte %d don't increase from %d on", start, r.FirstRecord)
		}
		r.numbers = append(r.numbers, n)
	}
	return nil
}

// decodeOperator decodes an operator's spec and the length of its values.
func (r *Result) decodeOperator(c *cursor) (value uint32, err error) {
	if len(c.body)-c.at < operatorBytes {
		return 0, errors.New("truncated in its length fields")
	}
	specBytes, value := binary.LittleEndian.Uint32(c.body[c.at:]), binary.LittleEndian.Uint32(c.body[c.at+4:])
	c.at += operatorBytes
	spec, err := c.field(uint64(specBytes), "spec")
	if err != nil {
		return 0, err
	}
	strings := value&stringsFollow != 0
	value &^= stringsFollow
	r.Operators = append(r.Operators, Operator{Spec: string(spec), Stride: int(value), ByteStrings: strings})
	return value, nil
}

// firstNotZero returns the index of the first record that isn't OK but has nonzero bytes in the operator's column. It returns -1
// if there is no such record.
func (r *Result) firstNotZero(operator int) int {
	stride := r.Operators[operator].Stride
	for i, status := range r.statuses {
		if Status(status) == OK {
			continue
		}
		for _, b := range r.columns[operator][i*stride:][:stride] {
			if b != 0 {
				return i
			}
		}
	}
	return -1
}

// cursor is a read position in a body.
type cursor struct {
	body []byte
	at   int
}

// field returns the next n bytes and moves the cursor past them and their padding. Its errors contain name.
func (c *cursor) field(n uint64, name string) ([]byte, error) {
	rest := c.body[c.at:]
	if n > uint64(len(rest)) {
		return nil, fmt.Errorf("%s: truncated: %d of %d bytes", name, len(rest), n)
	}
	padded := (n + binaryAlignment - 1) &^ (binaryAlignment - 1)
	if padded > uint64(len(rest)) {
		return nil, fmt.Errorf("%s: truncated: %d of %d bytes", name, len(rest), padded)
	}
	for _, b := range rest[n:padded] {
		if b != 0 {
			return nil, fmt.Errorf("%s: padding is not zero", name)
		}
	}
	c.at += int(padded)
	return rest[:n:n], nil
}

// stringsFollow is a flag in the length of an operator's values in a binary result. It is set if byte strings follow
// the values.
const stringsFollow = 1 << 31

// byteStrings has the byte strings of an operator's values.
type byteStrings struct {
	positions []byte // start of each record's byte strings, and then the end of the last record's; empty without byte strings
	bytes     []byte
}

// position returns the position where the byte strings of record i begin.
func (b byteStrings) position(i int) uint32 { return binary.LittleEndian.Uint32(b.positions[4*i:]) }

// decodeStrings decodes the byte strings of the operator with the given index, for the records in r.statuses.
func (r *Result) decodeStrings(c *cursor, operator int) (err error) {
	var s byteStrings
	if r.Operators[operator].ByteStrings {
		records := len(r.statuses)
		if s.positions, err = c.field(4*uint64(records+1), "positions of byte strings"); err != nil {
			return err
		}
		if err := s.check(r.statuses); err != nil {
			return err
		}
		if s.bytes, err = c.field(uint64(s.position(records)), "byte strings"); err != nil {
			return err
		}
	}
	r.strings = append(r.strings, s)
	return nil
}

// check checks that positions begin with 0 and never descend, and that only records with the status OK have byte
// strings.
func (b byteStrings) check(statuses []byte) error {
	if at := b.position(0); at != 0 {
		return fmt.Errorf("positions of byte strings begin with %d", at)
	}
	for i, status := range statuses {
		switch from, to := b.position(i), b.position(i+1); {
		case to < from:
			return fmt.Errorf("record %d: its byte strings begin at %d and end at %d", i, from, to)
		case to > from && Status(status) != OK:
			return fmt.Errorf("record %d is %v, but has byte strings", i, Status(status))
		}
	}
	return nil
}
