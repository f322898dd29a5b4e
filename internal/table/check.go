package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"millrace/client"
	"millrace/internal/arrowipc"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// Reference returns the table that the records of a message must have, computed with the reference implementations. statuses says
// how each record must end; nil means that all are OK.
func Reference(ops []operator.Operator, records [][]byte, statuses []record.Status) *Table {
	t := new(Table)
	t.Reset(ops, len(records))
	var result []byte
	for i, payload := range records {
		t.SetLength(i, len(payload))
		if statuses != nil {
			t.SetStatus(i, statuses[i])
		}
		for k, op := range ops {
			result = op.AppendReference(result[:0], payload)
			t.putValue(k, i, result)
		}
	}
	return t
}

// Check compares body with the result message that Append returns for the records from up to, but not including, to. The error names
// the first record that differs, by its index in the input's frame, the operator, and the position in its value.
func (t *Table) Check(body []byte, f operator.Format, from, to int) error {
	want := t.Append(nil, f, from, to)
	if bytes.Equal(body, want) {
		return nil
	}
	var err error
	switch f {
	case operator.Binary:
		err = t.differenceBinary(body, from, to)
	case operator.Arrow:
		err = t.differenceArrow(body, from, to)
	default:
		err = t.differenceJSON(body, from, to)
	}
	if err != nil {
		return err
	}
	at := 0
	for at < min(len(body), len(want)) && body[at] == want[at] {
		at++
	}
	return fmt.Errorf("the values are right, but their encoding differs at byte %d", at)
}

func (t *Table) differenceBinary(body []byte, from, to int) error {
	got, err := client.Decode(body)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		if err := t.differenceOperators(got); err != nil {
			return err
		}
	}
	if err := differenceCount(got.Len(), to-from); err != nil {
		return err
	}
	if got.FirstRecord != from && from < to {
		return fmt.Errorf("first record: got %d, want %d", got.FirstRecord, from)
	}
	for i, r := range got.Records() {
		if err := t.differenceStatus(i, record.Status(r.Status)); err != nil {
			return err
		}
		if r.Status != client.OK {
			continue // Decode has checked that the results are zero
		}
		if err := t.differenceResults(i, func(op int) []byte { return operator.BinaryValue(r, op) }); err != nil {
			return err
		}
	}
	return nil
}

// differenceOperators compares the version and the operators of a binary result.
func (t *Table) differenceOperators(got *client.Result) error {
	if got.Version != binaryVersion {
		return fmt.Errorf("binary result of version %d: want version %d", got.Version, binaryVersion)
	}
	if len(got.Operators) != len(t.ops) {
		return fmt.Errorf("operators: got %d, want %d", len(got.Operators), len(t.ops))
	}
	for i, op := range t.ops {
		if o := got.Operators[i]; o.Spec != op.String() || o.Stride != op.Stride() {
			return fmt.Errorf("operator %d: got %q with %d bytes per record, want %q with %d", i+1, o.Spec, o.Stride, op, op.Stride())
		}
	}
	return nil
}

func (t *Table) differenceArrow(body []byte, from, to int) error {
	got, err := arrowipc.Decode(operator.ArrowColumns(t.ops), body)
	if err != nil {
		return err
	}
	if err := differenceCount(len(got.Lengths), to-from); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		row := i - from
		if got.Lengths[row] != t.lengths[i] {
			return fmt.Errorf("record %d, bytes: got %d, want %d", i, got.Lengths[row], t.lengths[i])
		}
		if err := t.differenceStatus(i, got.Statuses[row]); err != nil {
			return err
		}
		value := func(k int) []byte { return operator.ArrowValue(t.ops[k], k, &got, row) }
		if err := t.differenceResults(i, value); err != nil {
			return err
		}
	}
	return nil
}

// differenceJSON compares line by line.
func (t *Table) differenceJSON(body []byte, from, to int) error {
	lines := bytes.SplitAfter(body, []byte("\n"))
	if last := lines[len(lines)-1]; len(last) > 0 {
		return fmt.Errorf("record %d: its line doesn't end with LF", from+len(lines)-1)
	}
	if err := differenceCount(len(lines)-1, to-from); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		line := bytes.TrimSuffix(lines[i-from], []byte("\n"))
		status, err := statusOfLine(line)
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		if err := t.differenceStatus(i, status); err != nil {
			return err
		}
		if status != record.OK {
			if want := t.appendError(nil, i); !bytes.Equal(line, want) {
				return fmt.Errorf("record %d: got %q, want %q", i, line, want)
			}
			continue
		}
		t.collect(i)
		if err := operator.JSON.Compare(t.ops, int(t.lengths[i]), t.results, line); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return nil
}

func statusOfLine(line []byte) (record.Status, error) {
	var object struct {
		Error *struct {
			Reason string `json:"reason"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &object); err != nil {
		return 0, fmt.Errorf("not a JSON result: %w", err)
	}
	if object.Error == nil {
		return record.OK, nil
	}
	status, err := record.ParseStatus(object.Error.Reason)
	if err == nil && status == record.OK {
		err = errors.New("an error with the reason ok")
	}
	return status, err
}

func differenceCount(got, want int) error {
	if got != want {
		return fmt.Errorf("records: got %d, want %d", got, want)
	}
	return nil
}

func (t *Table) differenceStatus(i int, got record.Status) error {
	if want := t.statuses[i]; got != want {
		return fmt.Errorf("record %d, status: got %v, want %v", i, got, want)
	}
	return nil
}

// differenceResults compares the results of record i, where value returns what the body has for an operator.
func (t *Table) differenceResults(i int, value func(op int) []byte) error {
	t.collect(i)
	for k, op := range t.ops {
		if err := operator.CompareRecords(op, value(k), t.results[k]); err != nil {
			return fmt.Errorf("record %d, %w", i, err)
		}
	}
	return nil
}
