package client

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// stringsFollow is set in the length of an operator's values in a binary result if byte strings follow.
const stringsFollow = 1 << 31

// byteStrings has the byte strings of an operator's values.
type byteStrings struct {
	positions []byte // for each record where its byte strings begin, and where the last end; empty if the operator has none
	bytes     []byte
}

// position returns where the byte strings of record i begin.
func (s byteStrings) position(i int) uint32 { return binary.LittleEndian.Uint32(s.positions[4*i:]) }

// decodeStrings decodes the byte strings of the operator with that index, for the records in r.statuses.
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

// check checks that positions begin with 0 and rise, and that only records that are OK have byte strings.
func (s byteStrings) check(statuses []byte) error {
	if at := s.position(0); at != 0 {
		return fmt.Errorf("positions of byte strings begin with %d", at)
	}
	for i, status := range statuses {
		switch from, to := s.position(i), s.position(i+1); {
		case to < from:
			return fmt.Errorf("record %d: its byte strings begin at %d and end at %d", i, from, to)
		case to > from && Status(status) != OK:
			return fmt.Errorf("record %d is %v, but has byte strings", i, Status(status))
		}
	}
	return nil
}

// Strings returns the byte strings in the value of the operator with that index, back to back, as a slice of the body. Value has the
// length of each, a little-endian uint32 in the place of its field. Strings returns nil if the operator has no byte strings, or if the
// record's status isn't OK. It panics if there is no such operator.
func (r Record) Strings(operator int) []byte {
	s := r.result.strings[operator]
	if len(s.positions) == 0 || r.Status != OK {
		return nil
	}
	from, to := s.position(r.index), s.position(r.index+1)
	return s.bytes[from:to:to]
}

// ByteString is a byte string in a JSON result: a string if it is text, and otherwise an object such as {"base64":"AP8="}.
type ByteString []byte

// UnmarshalJSON decodes both forms.
func (s *ByteString) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var t string
		if err := json.Unmarshal(text, &t); err != nil {
			return err
		}
		*s = ByteString(t)
		return nil
	}
	var object map[string]string
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	encoded, ok := object["base64"]
	if !ok || len(object) != 1 {
		return errors.New(`not a byte string: want a string, or an object with the key "base64" alone`)
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("byte string: %w", err)
	}
	*s = bytes
	return nil
}
