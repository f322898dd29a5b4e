package table

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// rows contains the kept fields of records. An empty text means that the field is absent.
type rows [][]string

func (r rows) Source(int) []byte    { return nil }
func (r rows) IsAnnotated(int) bool { return false }

func (r rows) Kept(i, k int) []byte {
	if text := r[i][k]; text != "" {
		return []byte(text)
	}
	return nil
}

func keptTable(t *testing.T, names []string, fields rows, statuses []record.Status) *Table {
	records := make([][]byte, len(fields))
	for i := range records {
		records[i] = []byte("123456789")
	}
	table := Reference(parseList(t, "crc32c"), records, statuses)
	table.Keep(names, fields)
	return table
}

func TestKeptFieldsInJSON(t *testing.T) {
	table := keptTable(t, []string{"id", "a \"b\""}, rows{{`"a1"`, ""}, {"", "{\n\r\"x\" :1}"}, {"", ""}, {"7", ""}},
		[]record.Status{record.OK, record.OK, record.OK, record.NoField})
	const want = `{"bytes":9,"fields":{"id":"a1"},"crc32c":"e3069283"}
{"bytes":9,"fields":{"a \"b\"":{  "x" :1}},"crc32c":"e3069283"}
{"bytes":9,"fields":{},"crc32c":"e3069283"}
{"bytes":9,"fields":{"id":7},"error":{"reason":"no_field","message":"the record has no text in the configured field"}}
`
	body := table.Append(nil, operator.JSON, 0, 4)
	if string(body) != want {
		t.Errorf("the result is\n%swant\n%s", body, want)
	}
	n := 0
	for line, err := range client.Lines(body) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 && (string(line.Fields["id"]) != `"a1"` || len(line.Values) != 1) {
			t.Errorf("the client reads %+v", line)
		}
	}
	if got := table.AppendSingle(nil, operator.JSON); string(got)+"\n" != want[:strings.Index(want, "\n")+1] {
		t.Errorf("the single result is %s", got)
	}
}

func TestKeptFieldsInArrow(t *testing.T) {
	fields := rows{{`"a1"`, ""}, {"", "2"}, {"", ""}, {"7", "8"}}
	table := keptTable(t, []string{"id", "n"}, fields, []record.Status{record.OK, record.Null, record.OK, record.InvalidJSON})
	for _, span := range [][2]int{{0, 4}, {1, 3}, {2, 2}} {
		r, err := arrow.Decode(table.Append(nil, operator.Arrow, span[0], span[1]))
		if err != nil {
			t.Fatal(err)
		}
		for k, name := range []string{"fields.id", "fields.n"} {
			texts := r.ByteStrings(name)
			if texts == nil {
				t.Fatalf("no column %s", name)
			}
			for i := range span[1] - span[0] {
				if got := texts.Value(i); string(got) != fields[span[0]+i][k] || (got == nil) != (fields[span[0]+i][k] == "") {
					t.Errorf("%s of record %d is %q", name, i, got)
				}
			}
		}
		if span[0] == 0 && r.Column("crc32c").Value(0) == nil {
			t.Error("the operator has no value")
		}
	}
}

// TestBodiesWithFieldsStayWithinTheirBound uses names and values that escaping could lengthen.
func TestBodiesWithFieldsStayWithinTheirBound(t *testing.T) {
	names := []string{"\x01\x02<>&", "id"}
	for _, n := range []int{0, 1, 3, 100} {
		fields, bytes := make(rows, n), 0
		for i := range fields {
			fields[i] = []string{strings.Repeat("1", i+1), `"` + strings.Repeat("<", i) + `"`}
			bytes += len(fields[i][0]) + len(fields[i][1])
		}
		table := keptTable(t, names, fields, nil)
		for _, f := range []operator.Format{operator.JSON, operator.Arrow} {
			maximum := MaxBytes(f, table.ops, n, 0) + MaxFields(f, names, n, bytes)
			if got := len(table.Append(nil, f, 0, n)); got > maximum {
				t.Errorf("%v of %d records has %d bytes, more than %d", f, n, got, maximum)
			}
			if got, limit := table.Size(), MaxSize(f, table.ops, n, 0)+int64(MaxFields(f, names, n, bytes)); f == operator.Arrow && n > 0 && got > limit {
				t.Errorf("%v of %d records needs %d bytes of memory, more than %d", f, n, got, limit)
			}
		}
		for i := range n {
			if !json.Valid(table.Append(nil, operator.JSON, i, i+1)) {
				t.Errorf("the result of record %d isn't JSON", i)
			}
		}
	}
}

// TestFieldsTooLargeForAMessageAreLeftOut: Shrink first gives the record a status, and then removes its fields.
func TestFieldsTooLargeForAMessageAreLeftOut(t *testing.T) {
	table := keptTable(t, []string{"id"}, rows{{"1"}, {strings.Repeat("1", 2000)}, {"3"}}, nil)
	for attempt := range 3 {
		_, parts, err := table.Parts(nil, operator.JSON, 1000, nil)
		var single *RecordTooLargeError
		if !errors.As(err, &single) {
			if attempt != 2 || err != nil || len(parts) != 1 || bytes.Count(parts[0].Body, []byte(`"fields":{}`)) != 1 || table.Status(1) != record.TooLarge {
				t.Errorf("after %d attempts: %v, %d parts, status %v", attempt, err, len(parts), table.Status(1))
			}
			return
		}
		if single.Record != 1 || !table.Shrink(1) {
			t.Fatalf("record %d can't become smaller", single.Record)
		}
	}
	t.Error("the result stays too large")
}

func TestResetRemovesTheFields(t *testing.T) {
	table := keptTable(t, []string{"id"}, rows{{"1"}}, nil)
	with := table.Append(nil, operator.Arrow, 0, 1)
	table.Shrink(0)
	table.Shrink(0)
	table.Reset(table.ops, 1)
	if got := table.Append(nil, operator.Arrow, 0, 1); bytes.Contains(got, []byte("fields.id")) || !bytes.Contains(with, []byte("fields.id")) {
		t.Error("the table keeps fields of an earlier message")
	}
	table.Keep([]string{"id"}, rows{{"1"}})
	if got := string(table.Append(nil, operator.JSON, 0, 1)); !strings.Contains(got, `"fields":{"id":1}`) {
		t.Errorf("the result is %s", got)
	}
}

func TestTheResultOfASingleNullRecord(t *testing.T) {
	table := Reference(parseList(t, "crc32c"), [][]byte{nil}, []record.Status{record.Null})
	if got, want := string(table.AppendSingle(nil, operator.JSON)), `{"bytes":0,"error":{"reason":"null","message":"the record is null"}}`; got != want {
		t.Errorf("the result is %s, want %s", got, want)
	}
	r, err := client.Decode(table.AppendSingle(nil, operator.Binary))
	if err != nil || r.Len() != 1 || r.Record(0).Status != client.Null {
		t.Errorf("the binary result is %+v, %v", r, err)
	}
	a, err := arrow.Decode(table.AppendSingle(nil, operator.Arrow))
	if err != nil || a.Len() != 1 || a.Statuses[0] != "null" {
		t.Errorf("the Arrow result is %+v, %v", a, err)
	}
}
