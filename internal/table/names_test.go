package table

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/record"
)

// TestNoOperatorDoublesANameOfResults checks that an operator can't have the name of another key of a JSON result, or of another column.
func TestNoOperatorDoublesANameOfResults(t *testing.T) {
	table := keptTable(t, []string{"id"}, rows{{`"a1"`}, {"7"}}, []record.Status{record.OK, record.NoField}).Select([]uint32{0, 1})
	names := map[string]bool{}
	for line := range bytes.Lines(table.Append(nil, operator.JSON, 0, 2)) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		for name := range members {
			names[name] = true
		}
	}
	r, err := ipc.NewReader(bytes.NewReader(table.Append(nil, operator.Arrow, 0, 2)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for _, f := range r.Schema().Fields() {
		names[f.Name] = true
	}
	if len(names) != len([]string{"bytes", "crc32c", "error", "fields", "fields.id", "record", "status"}) {
		t.Errorf("the results have the names %v", names)
	}
	for name := range names {
		if compiled.CheckName(name) == nil {
			t.Errorf("an operator may have the name %s", name)
		}
	}
}
