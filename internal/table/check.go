package table

import (
	"fmt"

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
// the first byte that differs.
func (t *Table) Check(body []byte, f operator.Format, from, to int) error {
	if err := operator.Compare(body, t.Append(nil, f, from, to)); err != nil {
		return fmt.Errorf("the result of records %d to %d: %w", from, to-1, err)
	}
	return nil
}
