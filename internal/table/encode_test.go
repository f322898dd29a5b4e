package table

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/internal/operator"
	"millrace/internal/record"
)

var ranges = [][2]int{{0, 40}, {0, 1}, {7, 8}, {3, 40}, {5, 26}, {39, 40}}

func TestContentTypes(t *testing.T) {
	for _, c := range []struct {
		f      operator.Format
		framed bool
		want   string
	}{
		{operator.JSON, false, "application/json"},
		{operator.JSON, true, "application/x-ndjson"},
		{operator.Binary, true, "application/octet-stream"},
		{operator.Arrow, false, "application/vnd.apache.arrow.stream"},
	} {
		if got := ContentType(c.f, c.framed); got != c.want {
			t.Errorf("%v, framed %t: %s, want %s", c.f, c.framed, got, c.want)
		}
	}
}

func TestJSONBytes(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	table := Reference(ops, [][]byte{[]byte("123456789"), nil, []byte("x")}, []record.Status{record.OK, record.Null, record.DeviceFault})
	want := `{"bytes":9,"crc32c":"e3069283","minhash":{"k":4,"seed":42,"signature":[529274414,833389941]}}
{"bytes":0,"error":{"reason":"null","message":"the record is null"}}
{"bytes":1,"error":{"reason":"device_fault","message":"the record breaks the device"}}
`
	if got := string(table.Append(nil, operator.JSON, 0, 3)); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// TestLinesAreResultsOfSingleRecords: each line equals the result of an unframed message with that record.
func TestLinesAreResultsOfSingleRecords(t *testing.T) {
	ops := parseList(t, "minhash?k=3&hashes=6,crc32c")
	records, _ := someRecords(40, 0)
	lines := strings.SplitAfter(string(Reference(ops, records, nil).Append(nil, operator.JSON, 0, 40)), "\n")
	for i, payload := range records {
		if err := operator.JSON.Check(ops, payload, []byte(strings.TrimSuffix(lines[i], "\n"))); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
	}
}

func TestJSONAsOthersReadIt(t *testing.T) {
	table := someTable(parseList(t, "crc32c"), 40, 3)
	decoder := json.NewDecoder(bytes.NewReader(table.Append(nil, operator.JSON, 3, 40)))
	for i := 3; i < 40; i++ {
		var line struct {
			Bytes  uint64
			CRC32C string
			Error  struct{ Reason, Message string }
		}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		status := table.Status(i)
		if ok := status == record.OK; ok != (line.CRC32C != "") || ok != (line.Error.Reason == "") {
			t.Errorf("record %d of status %v: %+v", i, status, line)
		}
		if status != record.OK && (line.Error.Reason != status.String() || line.Error.Message != status.Message()) {
			t.Errorf("record %d: %+v, want %v", i, line.Error, status)
		}
		if line.Bytes != table.lengths[i] {
			t.Errorf("record %d: %d bytes, want %d", i, line.Bytes, table.lengths[i])
		}
	}
}

// TestBinaryBytes checks the layout byte by byte.
func TestBinaryBytes(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	table := Reference(ops, [][]byte{nil, []byte("123456789"), []byte("x")}, []record.Status{record.OK, record.OK, record.TooLarge})
	want := "4d494c4c" + "0200" + "0200" + "02000000" + "01000000" + // MILL, version 2, 2 operators, 2 records, first record 1
		"06000000" + "04000000" + hex.EncodeToString([]byte("crc32c")) + "0000" +
		"1c000000" + "08000000" + hex.EncodeToString([]byte("minhash?k=4&hashes=2&seed=42")) +
		"0002" + "0000" + // statuses
		"839206e3" + "00000000" + // crc32c
		"2e168c1f7585ac31" + "0000000000000000" // minhash
	if got := hex.EncodeToString(table.Append(nil, operator.Binary, 1, 3)); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// readBinary decodes a body independently, as a program in another language would.
func readBinary(t *testing.T, body []byte) (first int, specs []string, statuses []byte, columns [][]byte) {
	t.Helper()
	le := binary.LittleEndian
	if string(body[:4]) != "MILL" || le.Uint16(body[4:]) != 2 {
		t.Fatalf("header %q", body[:16])
	}
	operators, records, at := int(le.Uint16(body[6:])), int(le.Uint32(body[8:])), 16
	up := func(n int) int { return (n + 3) / 4 * 4 }
	var strides []int
	for range operators {
		n := int(le.Uint32(body[at:]))
		strides = append(strides, int(le.Uint32(body[at+4:])))
		specs = append(specs, string(body[at+8:at+8+n]))
		at += 8 + up(n)
	}
	statuses = body[at : at+records]
	at += up(records)
	for _, stride := range strides {
		columns = append(columns, body[at:at+records*stride])
		at += up(records * stride)
	}
	if at != len(body) {
		t.Fatalf("%d bytes, want %d", len(body), at)
	}
	return int(le.Uint32(body[12:])), specs, statuses, columns
}

// odd is an operator whose result size isn't a multiple of 4 bytes.
type odd struct{ operator.Operator }

func (odd) Name() string                         { return "odd" }
func (odd) String() string                       { return "odd?n=3" }
func (odd) Stride() int                          { return 3 }
func (odd) AppendJSON(dst, result []byte) []byte { return fmt.Appendf(dst, `"%x"`, result) }
func (odd) MaxJSON() int                         { return 8 }
func (odd) AppendReference(dst, payload []byte) []byte {
	return append(dst, 0xAA, byte(len(payload)), 1)
}

func TestBinaryAsOthersReadIt(t *testing.T) {
	ops := append(parseList(t, "crc32c,minhash?k=3&hashes=7"), odd{})
	records, statuses := someRecords(40, 3)
	table, columns := Reference(ops, records, statuses), columnsOf(ops, records)
	for _, r := range ranges {
		first, specs, got, values := readBinary(t, table.Append(nil, operator.Binary, r[0], r[1]))
		if first != r[0] || len(got) != r[1]-r[0] || strings.Join(specs, ",") != "crc32c,minhash?k=3&hashes=7&seed=42,odd?n=3" {
			t.Fatalf("records %v: first %d, %d records, specs %q", r, first, len(got), specs)
		}
		for i := r[0]; i < r[1]; i++ {
			if record.Status(got[i-r[0]]) != statuses[i] {
				t.Errorf("record %d: status %d, want %v", i, got[i-r[0]], statuses[i])
			}
			for k, op := range ops {
				want := make([]byte, op.Stride())
				if statuses[i] == record.OK {
					copy(want, columns[k][i*op.Stride():])
				}
				if value := values[k][(i-r[0])*op.Stride():][:op.Stride()]; !bytes.Equal(value, want) {
					t.Errorf("record %d, %v: %x, want %x", i, op, value, want)
				}
			}
		}
	}
}

func TestArrowAsOthersReadIt(t *testing.T) {
	ops := append(parseList(t, "crc32c,minhash?k=3&hashes=7"), odd{})
	records, statuses := someRecords(40, 3)
	table, columns := Reference(ops, records, statuses), columnsOf(ops, records)
	for _, r := range ranges {
		reader, err := ipc.NewReader(bytes.NewReader(table.Append(nil, operator.Arrow, r[0], r[1])))
		if err != nil {
			t.Fatal(err)
		}
		if !reader.Next() || reader.RecordBatch().NumRows() != int64(r[1]-r[0]) {
			t.Fatalf("records %v: no batch with all", r)
		}
		batch := reader.RecordBatch()
		entries := batch.Column(3).(*array.FixedSizeList).ListValues().(*array.Uint32)
		for i := r[0]; i < r[1]; i++ {
			row := i - r[0]
			if got := batch.Column(0).(*array.Uint64).Value(row); got != uint64(len(records[i])) {
				t.Errorf("record %d: %d bytes, want %d", i, got, len(records[i]))
			}
			if got := batch.Column(1).(*array.String).Value(row); got != statuses[i].String() {
				t.Errorf("record %d: status %s, want %v", i, got, statuses[i])
			}
			if null := batch.Column(2).IsNull(row); null != (statuses[i] != record.OK) {
				t.Errorf("record %d: null is %t, and its status %v", i, null, statuses[i])
			}
			if statuses[i] != record.OK {
				continue
			}
			if got, want := batch.Column(2).(*array.Uint32).Value(row), binary.LittleEndian.Uint32(columns[0][4*i:]); got != want {
				t.Errorf("record %d: crc32c %08x, want %08x", i, got, want)
			}
			for e := range 7 {
				if got, want := entries.Value(7*row+e), binary.LittleEndian.Uint32(columns[1][28*i+4*e:]); got != want {
					t.Errorf("record %d: entry %d is %d, want %d", i, e, got, want)
				}
			}
			if got, want := batch.Column(4).(*array.FixedSizeBinary).Value(row), columns[2][3*i:3*i+3]; !bytes.Equal(got, want) {
				t.Errorf("record %d: odd %x, want %x", i, got, want)
			}
		}
		reader.Release()
	}
}

func TestBodiesWithoutRecords(t *testing.T) {
	table := someTable(parseList(t, "crc32c,minhash"), 5, 0)
	for _, f := range []operator.Format{operator.JSON, operator.Binary} {
		if body := table.Append([]byte("before"), f, 2, 2); string(body) != "before" {
			t.Errorf("%v: %q", f, body)
		}
	}
	reader, err := ipc.NewReader(bytes.NewReader(table.Append(nil, operator.Arrow, 5, 5)))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if got := reader.Schema().NumFields(); got != 4 || reader.Next() || reader.Err() != nil {
		t.Errorf("%d columns, and a batch or an error: %v", got, reader.Err())
	}
}

func TestMaxBytesBoundsEveryBody(t *testing.T) {
	for _, list := range []string{"crc32c", "minhash?hashes=1", "crc32c,minhash?k=256&hashes=33&seed=4294967295"} {
		ops := parseList(t, list)
		for _, n := range []int{0, 1, 3, 100} {
			for s := range record.Statuses {
				var table Table
				table.Reset(ops, n)
				for i := range n {
					table.SetLength(i, math.MaxInt64)
					table.SetStatus(i, record.Status(s))
					for k, op := range ops {
						table.Put(k, i, bytes.Repeat([]byte{0xFF}, op.Stride()))
					}
				}
				for _, f := range formats {
					if got, maximum := len(table.Append(nil, f, 0, n)), MaxBytes(f, ops, n, 0); got > maximum {
						t.Errorf("%s as %v: %d records of status %v have %d bytes, and MaxBytes is %d", list, f, n, record.Status(s), got, maximum)
					}
				}
			}
		}
	}
}

func TestAppendAllocatesNothingPerRecord(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=4")
	for _, f := range formats {
		count := func(n int) float64 {
			table := someTable(ops, n, 5)
			dst := table.Append(make([]byte, 0, MaxBytes(f, ops, n, 0)), f, 0, n)
			return testing.AllocsPerRun(20, func() { dst = table.Append(dst[:0], f, 0, n) })
		}
		few, many := count(100), count(2000)
		if many > few || f != operator.Arrow && many != 0 {
			t.Errorf("%v: %v allocations for 100 records, %v for 2000", f, few, many)
		}
	}
}
