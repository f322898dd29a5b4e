//go:build cgo

package userops

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

func TestArrowIsAStructWithNullsForRefusedRecords(t *testing.T) {
	ops, err := operator.ParseList("entropy,crc32c", find(t, folder(t, true))...)
	if err != nil {
		t.Fatal(err)
	}
	records := [][]byte{[]byte("aab"), {}, []byte("xyzzy")}
	results := table.Reference(ops, records, []record.Status{record.OK, record.OperatorError, record.OK})
	body := results.Append(nil, operator.Arrow, 0, 3)
	if err := results.Check(body, operator.Arrow, 0, 3); err != nil {
		t.Error(err)
	}
	reader, err := ipc.NewReader(bytes.NewReader(body)) // an independent reader
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if got := reader.Schema().Field(2); got.Name != "entropy" || !strings.HasPrefix(got.Type.String(), "struct<peak: uint32") {
		t.Errorf("the column is %v", got)
	}
	if spec, _ := reader.Schema().Field(2).Metadata.GetValue("operator"); spec != "entropy?bits=4" {
		t.Errorf("the spec is %q", spec)
	}
	if !reader.Next() {
		t.Fatal("no batch")
	}
	column := reader.RecordBatch().Column(2).(*array.Struct)
	peaks := column.Field(0).(*array.Uint32)
	for i, want := range []uint32{3, 0, 5} {
		if column.IsNull(i) != (i == 1) || i != 1 && peaks.Value(i) != want {
			t.Errorf("record %d: null is %t, peak %d, want %d", i, column.IsNull(i), peaks.Value(i), want)
		}
	}
	single := operator.Arrow.Append(nil, ops, 3, [][]byte{ops[0].AppendReference(nil, records[0]), ops[1].AppendReference(nil, records[0])})
	if err := operator.Arrow.Check(ops, records[0], single); err != nil {
		t.Error(err)
	}
	if err := operator.Arrow.Check(ops, records[2], single); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("the result of another payload: error %v", err)
	}
}

func TestArrowTypesFollowTheDeclaration(t *testing.T) {
	for name, test := range map[string]struct{ declared, want string }{
		"struct": {"MILLRACE_RESULT(int8_t, a)\nMILLRACE_RESULT_ARRAY(double, b, 2)", "struct<a: int8, b: fixed_size_list<item: float64>[2]>"},
		"number": {"MILLRACE_RESULT(uint64_t, a, millrace::bare)", "uint64"},
		"column": {"MILLRACE_RESULT_ARRAY(float, a, 3, millrace::bare_column)", "fixed_size_list<item: float32>[3]"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "#include <millrace/operator.cuh>\nMILLRACE_OPERATOR(some, 1)\n" + test.declared + "\nMILLRACE_RECORD(record, params, result) {}\n"
			ops, err := operator.ParseList("some", find(t, folderWith(t, "some", text, true))...)
			if err != nil {
				t.Fatal(err)
			}
			body := table.Reference(ops, [][]byte{[]byte("x")}, nil).Append(nil, operator.Arrow, 0, 1)
			reader, err := ipc.NewReader(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Release()
			if got := reader.Schema().Field(2).Type.String(); got != test.want {
				t.Errorf("the column is %s, want %s", got, test.want)
			}
		})
	}
}
