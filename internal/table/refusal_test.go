package table

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// refuser is an operator that declares refusals but refuses no record.
type refuser struct{ operator.Operator }

func (refuser) Refusal([]byte, int, int) string { return "" }

func refusers(t testing.TB) []operator.Operator {
	ops := parseList(t, "crc32c,minhash?hashes=2")
	return []operator.Operator{ops[0], refuser{ops[1]}}
}

func TestARefusedRecordHasItsReason(t *testing.T) {
	table := Reference(refusers(t), [][]byte{[]byte("a"), {}, []byte("b"), []byte("c")}, nil)
	reason := `not "a\b", but less`
	table.Refuse(1, 1, reason)
	table.SetStatus(2, record.OperatorError)
	table.Refuse(3, 1, "another")
	table.SetStatus(3, record.DeviceFault)
	body := table.Append(nil, operator.JSON, 0, 4)
	for i, want := range []string{"", "operator minhash: " + reason, record.OperatorError.Message(), record.DeviceFault.Message()} {
		var line struct {
			Error struct{ Reason, Message string }
		}
		if err := json.Unmarshal([]byte(strings.Split(string(body), "\n")[i]), &line); err != nil {
			t.Fatal(err)
		}
		if line.Error.Message != want {
			t.Errorf("record %d: message %q, want %q", i, line.Error.Message, want)
		}
		if want != "" && (line.Error.Reason != table.Status(i).String() || table.Message(i) != want) {
			t.Errorf("record %d: reason %q, message %q", i, line.Error.Reason, table.Message(i))
		}
	}
	if err := table.Check(body, operator.JSON, 0, 4); err != nil {
		t.Error(err)
	}
	other := strings.Replace(string(body), "but less", "but more", 1)
	if err := table.Check([]byte(other), operator.JSON, 0, 4); err == nil || !strings.Contains(err.Error(), "but more") {
		t.Errorf("another reason: error %v", err)
	}
	table.Reset(refusers(t), 4)
	table.SetStatus(1, record.OperatorError)
	if got := table.Message(1); got != record.OperatorError.Message() {
		t.Errorf("after Reset, the message is %q", got)
	}
}

// TestRefusalsFitTheirBound: the longest error lines fit in the bounds of a body and of the table's memory.
func TestRefusalsFitTheirBound(t *testing.T) {
	ops := []operator.Operator{refuser{named{parseList(t, "crc32c")[0], strings.Repeat("n", 32)}}}
	const n = 50
	var table Table
	table.Reset(ops, n)
	for i := range n {
		table.SetLength(i, 1<<62)
		table.Refuse(i, 0, strings.Repeat(`"`, 62)+fmt.Sprintf("%02d", i))
	}
	if got, maximum := len(table.Append(nil, operator.JSON, 0, n)), MaxBytes(operator.JSON, ops, n, 0); got > maximum {
		t.Errorf("%d bytes, and the bound is %d", got, maximum)
	}
	if got, maximum := table.Size(), MaxSize(operator.JSON, ops, n, 0); got > maximum {
		t.Errorf("the table has %d bytes, and the bound is %d", got, maximum)
	}
	reason := strings.Repeat("r", 64)
	if got := testing.AllocsPerRun(10, func() {
		for i := range n {
			table.Refuse(i, 0, reason)
		}
	}); got > 0 {
		t.Errorf("%v allocations for %d records that are refused for the same reason", got, n)
	}
}

type named struct {
	operator.Operator
	name string
}

func (n named) Name() string { return n.name }

func TestRefuseIsConcurrent(t *testing.T) {
	const n = 400
	var table Table
	table.Reset(refusers(t), n)
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := k; i < n; i += 4 {
				table.Refuse(i, 1, fmt.Sprint(i%7))
			}
		})
	}
	all.Wait()
	for i := range n {
		if got, want := table.Message(i), fmt.Sprint("operator minhash: ", i%7); got != want {
			t.Errorf("record %d: %q, want %q", i, got, want)
		}
	}
}
