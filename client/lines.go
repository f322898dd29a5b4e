package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
)

// Line is the result of one record in JSON: a line of a frame's result, or the whole result of a message with one record.
type Line struct {
	Record *int         // index of the record in the input; nil unless the worker has a filter or annotates documents
	Bytes  uint64       // length of the record
	Error  *RecordError // nil if the record was processed

	// Fields maps the names in the worker's MILLRACE_KEEP_FIELDS to the fields of the record. It lacks fields that the record doesn't
	// have.
	Fields map[string]json.RawMessage

	// Values maps the name of each operator to the operator's value. It is empty for a record that failed.
	Values map[string]json.RawMessage
}

// RecordError is the reason why a record has no result.
type RecordError struct {
	Reason  string `json:"reason"`  // fixed word, as in HeaderReason
	Message string `json:"message"` // human-readable
}

func (r *RecordError) Error() string { return r.Reason + ": " + r.Message }

// Minhash is the value of the operator minhash.
type Minhash struct {
	K         int      `json:"k"`
	Seed      uint32   `json:"seed"`
	Signature []uint32 `json:"signature"`
}

// UnmarshalJSON decodes an object with the key bytes and optionally the keys record and fields. The object also has either the key error or
// a key for each operator.
func (l *Line) UnmarshalJSON(text []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text, &values); err != nil {
		return err
	}
	length, ok := values["bytes"]
	if !ok {
		return errors.New(`not a result: the key "bytes" is missing`)
	}
	line := Line{Values: values}
	if err := json.Unmarshal(length, &line.Bytes); err != nil {
		return fmt.Errorf("bytes: %w", err)
	}
	delete(values, "bytes")
	for key, part := range map[string]any{"record": &line.Record, "fields": &line.Fields, "error": &line.Error} {
		text, ok := values[key]
		if !ok {
			continue
		}
		if err := json.Unmarshal(text, part); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		delete(values, key)
	}
	*l = line
	return nil
}

// Lines iterates over the records of a JSON result, in the input's order. It ends at the first line that it can't decode, with an
// error that names the line.
func Lines(body []byte) iter.Seq2[Line, error] {
	return decodeLines(body, func(text []byte) (line Line, err error) {
		err = json.Unmarshal(text, &line)
		return line, err
	})
}

// decodeLines iterates over the lines of a body, up to the first line that decode fails on.
func decodeLines[T any](body []byte, decode func(line []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		number := 0
		for text := range bytes.Lines(body) {
			number++
			value, err := decode(text)
			if err != nil {
				var none T
				yield(none, fmt.Errorf("line %d: %w", number, err))
				return
			}
			if !yield(value, nil) {
				return
			}
		}
	}
}

// ByteString is a byte string in a JSON result. Text is a JSON string. Other bytes are an object such as
// {"base64":"AP8="}.
type ByteString []byte

// UnmarshalJSON decodes a string, or an object with the key base64.
func (b *ByteString) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		var t string
		if err := json.Unmarshal(text, &t); err != nil {
			return err
		}
		*b = ByteString(t)
		return nil
	}
	var object map[string]string
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	encoded, ok := object["base64"]
	if !ok || len(object) != 1 {
		return errors.New(`not a byte string: want a string, or an object with only the key "base64"`)
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return fmt.Errorf("byte string: %w", err)
	}
	*b = bytes
	return nil
}
