package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"millrace/client"
)

// Check computes a payload's results with the reference implementation and compares body with the message that ops
// would produce. The error names the operator with the different result, and the position.
func (f Format) Check(ops []Operator, payload, body []byte) error {
	records := make([][]byte, len(ops))
	for i, op := range ops {
		records[i] = op.AppendReference(make([]byte, 0, op.Stride()), payload)
	}
	return f.Compare(ops, len(payload), records, body)
}

// Compare compares body with the message that Append returns for the same arguments. The error names the operator with the
// different result, and the position.
func (f Format) Compare(ops []Operator, payloadBytes int, records [][]byte, body []byte) error {
	want := f.Append(nil, ops, payloadBytes, records)
	if bytes.Equal(body, want) {
		return nil
	}
	var err error
	switch f {
	case Binary:
		err = differenceBinary(ops, uint64(payloadBytes), records, body)
	case Arrow:
		err = differenceArrow(ops, uint64(payloadBytes), records, body)
	default:
		err = differenceJSON(ops, payloadBytes, records, body)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("the values are right, but their encoding differs: %s", firstDifference(body, want))
}

func differenceBinary(ops []Operator, payloadBytes uint64, records [][]byte, body []byte) error {
	result, err := client.Decode(body)
	if err != nil {
		return err
	}
	if result.Version != binaryVersion {
		return fmt.Errorf("version: got %d, want %d", result.Version, binaryVersion)
	}
	if result.PayloadBytes != payloadBytes {
		return fmt.Errorf("payload bytes: got %d, want %d", result.PayloadBytes, payloadBytes)
	}
	if len(result.Operators) != len(ops) {
		return fmt.Errorf("results: got %d, want %d", len(result.Operators), len(ops))
	}
	for i, op := range ops {
		got := result.Operators[i]
		if got.Spec != op.String() {
			return fmt.Errorf("operator %d: got %q, want %q", i+1, got.Spec, op)
		}
		if got.Stride != op.Stride() {
			return fmt.Errorf("%s: got a record of %d bytes, want %d", op.Name(), got.Stride, op.Stride())
		}
		if err := CompareRecords(op, BinaryValue(result.Record(0), i), records[i]); err != nil {
			return err
		}
	}
	return nil
}

// BinaryValue returns the value of the operator with that index in a binary result.
func BinaryValue(r client.Record, operator int) []byte {
	if strings := r.Strings(operator); len(strings) > 0 {
		return slices.Concat(r.Value(operator), strings)
	}
	return r.Value(operator)
}

// CompareRecords compares two values of an operator. The error names the operator, and the position in their JSON values.
func CompareRecords(op Operator, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: a value of %d bytes, want %d", op.Name(), len(got), len(want))
	}
	return fmt.Errorf("%s: %s", op.Name(), firstDifference(op.AppendJSON(nil, got), op.AppendJSON(nil, want)))
}

func differenceJSON(ops []Operator, payloadBytes int, records [][]byte, body []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil {
		return fmt.Errorf("not a JSON result: %w", err)
	}
	if err := differenceValue(values, "bytes", strconv.AppendInt(nil, int64(payloadBytes), 10)); err != nil {
		return err
	}
	for i, op := range ops {
		if err := differenceValue(values, op.Name(), op.AppendJSON(nil, records[i])); err != nil {
			return err
		}
	}
	if want := len(ops) + 1; len(values) != want {
		return fmt.Errorf("got %d keys, want %d", len(values), want)
	}
	return nil
}

func differenceValue(values map[string]json.RawMessage, key string, want []byte) error {
	got, ok := values[key]
	if !ok {
		return fmt.Errorf("%s: missing", key)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, got); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if !bytes.Equal(compact.Bytes(), want) {
		return fmt.Errorf("%s: %s", key, firstDifference(compact.Bytes(), want))
	}
	return nil
}

// firstDifference describes where two different texts diverge, with some context.
func firstDifference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	return fmt.Sprintf("differs at byte %d: got %s, want %s", at, around(got, at), around(want, at))
}

// around quotes the text near position at, at most 40 bytes.
func around(text []byte, at int) string {
	const before, behind = 12, 28
	from, to := max(at-before, 0), min(at+behind, len(text))
	return strconv.Quote(string(text[from:to]))
}
