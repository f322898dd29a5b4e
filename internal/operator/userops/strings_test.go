//go:build cgo

package userops

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"millrace/client"
	clientarrow "millrace/client/arrow"
	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// echo has two byte strings: the reversed record, and the record's length as text. It refuses records that start with
// x.
const echo = `#include <millrace/operator.cuh>
MILLRACE_OPERATOR(echo, 1)
MILLRACE_RESULT(uint8_t, first)
MILLRACE_RESULT_BYTES(back, 0, 1)
MILLRACE_RESULT_BYTES(size, 10, 0)
MILLRACE_REASON(x, "it begins with x")
MILLRACE_RECORD(record, params, result) {
    result.back.push('?');
    if (!record.empty() && record[0] == 'x') return result.reject(x);
    result.back.resize(0);
    if (!record.empty()) result.first = record[0];
    for (uint32_t i = record.size(); i > 0; i--) result.back.push(record[i - 1]);
    char digits[10];
    uint32_t n = 0;
    for (uint32_t left = record.size(); left > 0; left /= 10) digits[n++] = static_cast<char>('0' + left % 10);
    while (n > 0) result.size.push(digits[--n]);
}
`

// backwards is the reference of echo's first byte string.
func backwards(payload []byte) []byte {
	back := make([]byte, len(payload))
	for i, b := range payload {
		back[len(payload)-1-i] = b
	}
	return back
}

func echoes(t *testing.T, list string) []operator.Operator {
	t.Helper()
	ops, err := operator.ParseList(list, find(t, folderWith(t, "echo", echo, true))...)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// fill stores the results of batches in a table, as the consumer of frames does. A batch has at most the given number
// of rows.
func fill(t testing.TB, results *table.Table, ops []operator.Operator, records [][]byte, rows int) {
	t.Helper()
	results.Reset(ops, len(records))
	kernels, err := Kernels(ops[:1])
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernels[0].Bind(ops[0].Params())
	if err != nil {
		t.Fatal(err)
	}
	for first := 0; first < len(records); first += rows {
		batch := records[first:min(first+rows, len(records))]
		data, offsets := corpus.Pack(batch)
		memory := bytes.Repeat([]byte{0xa5}, kernel.Needs(device.Shape{Rows: len(batch), Bytes: len(data)}).Result)
		if err := kernel.Run(data, offsets, nil, memory, func(n int, fn func(int)) {
			for i := range n {
				fn(i)
			}
		}); err != nil {
			t.Fatal(err)
		}
		results.Put(0, first, memory[:len(batch)*ops[0].Stride()])
		results.PutStrings(0, first, len(batch), memory, offsets, 0)
		for i, payload := range batch {
			results.SetLength(first+i, len(payload))
			if reason := ops[0].(operator.Refuser).Refusal(memory, len(batch), i); reason != "" {
				results.Refuse(first+i, 0, reason)
			}
			for op := 1; op < len(ops); op++ {
				results.Put(op, first+i, ops[op].AppendReference(nil, payload))
			}
		}
	}
}

// someRecords returns records of many lengths, with text and other bytes. echo refuses some of them.
func someRecords() [][]byte {
	records := append(corpus.Lengths(3, 70), corpus.InvalidUTF8(4)...)
	records = append(records, []byte("xyz"), nil, []byte("é\"\\\n"), []byte("x"), corpus.Text(1, 5000))
	return records
}

// TestByteStringsInEveryFormat: results don't depend on the batches. Independent readers decode every byte.
func TestByteStringsInEveryFormat(t *testing.T) {
	ops, records := echoes(t, "echo,crc32c"), someRecords()
	var results, others table.Table
	fill(t, &results, ops, records, 1)
	fill(t, &others, ops, records, 7)
	for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		body := results.Append(nil, f, 0, len(records))
		if again := others.Append(nil, f, 0, len(records)); !bytes.Equal(body, again) {
			t.Errorf("%v: the result depends on the batches", f)
		}
		if err := others.Check(body, f, 0, len(records)); err != nil {
			t.Errorf("%v: %v", f, err)
		}
		if maximum := table.MaxBytes(f, ops, len(records), operator.StringBytes(ops, len(records), total(records))); len(body) > maximum {
			t.Errorf("%v: %d bytes, and the bound is %d", f, len(body), maximum)
		}
		back, size := readers[f](t, body, len(records))
		for i, payload := range records {
			want, digits := string(backwards(payload)), fmt.Sprint(len(payload))
			if results.Status(i) != record.OK {
				want, digits = "-", "-"
			} else if len(payload) == 0 {
				digits = ""
			}
			if back[i] != want || size[i] != digits {
				t.Fatalf("%v, record %d: %q and %q, want %q and %q", f, i, back[i], size[i], want, digits)
			}
		}
	}
	if n := results.Count()[record.OperatorError]; n < 2 {
		t.Errorf("%d records are refused: the test needs some", n)
	}
}

func total(records [][]byte) (n int) {
	for _, r := range records {
		n += len(r)
	}
	return n
}

// readers decode the two byte strings of each record. For a record without a result, they return "-".
var readers = map[operator.Format]func(t *testing.T, body []byte, n int) (back, size []string){
	operator.JSON: func(t *testing.T, body []byte, _ int) (back, size []string) {
		for line, err := range client.Lines(body) {
			var value struct{ Back, Size client.ByteString }
			if err == nil && line.Error == nil {
				err = json.Unmarshal(line.Values["echo"], &value)
			}
			if err != nil {
				t.Fatal(err)
			}
			if line.Error != nil {
				value.Back, value.Size = []byte("-"), []byte("-")
			}
			back, size = append(back, string(value.Back)), append(size, string(value.Size))
		}
		return back, size
	},
	operator.Binary: func(t *testing.T, body []byte, n int) (back, size []string) {
		r, err := client.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		if o := r.Operators[0]; !o.ByteStrings || o.Stride != 12 || r.Operators[1].ByteStrings {
			t.Errorf("operators %+v", r.Operators)
		}
		for i := range n {
			record := r.Record(i)
			if record.Status != client.OK {
				back, size = append(back, "-"), append(size, "-")
				continue
			}
			length, all := binary.LittleEndian.Uint32(record.Value(0)[4:]), string(record.Strings(0))
			back, size = append(back, all[:length]), append(size, all[length:])
			if got := binary.LittleEndian.Uint32(record.Value(0)[8:]); int(got) != len(all)-int(length) {
				t.Errorf("record %d: a length of %d and %d bytes", i, got, len(all)-int(length))
			}
		}
		return back, size
	},
	operator.Arrow: func(t *testing.T, body []byte, n int) (back, size []string) {
		reader, err := ipc.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Release()
		if !reader.Next() {
			t.Fatal("no batch")
		}
		column := reader.RecordBatch().Column(2).(*array.Struct)
		r, err := clientarrow.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if column.IsNull(i) {
				if r.ByteStrings("echo.back").Value(i) != nil {
					t.Errorf("record %d has no result, but a byte string", i)
				}
				back, size = append(back, "-"), append(size, "-")
				continue
			}
			back = append(back, string(column.Field(1).(*array.Binary).Value(i)))
			size = append(size, string(r.ByteStrings("echo.size").Value(i)))
			if got := string(r.ByteStrings("echo.back").Value(i)); got != back[i] {
				t.Errorf("record %d: client/arrow reads %q, and the Arrow library %q", i, got, back[i])
			}
		}
		return back, size
	},
}

// TestByteStringsOfASingleRecord checks the formats of a message with one unframed record.
func TestByteStringsOfASingleRecord(t *testing.T) {
	ops := echoes(t, "crc32c,echo")
	for _, payload := range [][]byte{[]byte("hello"), {}, {0xff, 0}, corpus.Text(2, 3001)} {
		var values [][]byte
		for _, op := range ops {
			values = append(values, op.AppendReference(nil, payload))
		}
		for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
			body := f.Append(nil, ops, len(payload), values)
			if err := f.Check(ops, payload, body); err != nil {
				t.Errorf("%v: %v", f, err)
			}
			if err := f.Check(ops, append([]byte("z"), payload...), body); err == nil {
				t.Errorf("%v: the result of another payload is accepted", f)
			}
			if maximum := f.MaxBytes(ops, operator.StringBytes(ops, 1, len(payload))); len(body) > maximum {
				t.Errorf("%v: %d bytes, and the bound is %d", f, len(body), maximum)
			}
			single := table.Reference(ops, [][]byte{payload}, nil).AppendSingle(nil, f)
			if !bytes.Equal(single, body) {
				t.Errorf("%v: a decompressed message has another result", f)
			}
			if f != operator.Binary {
				continue
			}
			r, err := client.Decode(body)
			if err != nil || r.Version != 1 {
				t.Fatalf("%v, version %d", err, r.Version)
			}
			if got := r.Record(0).Strings(1); !strings.HasPrefix(string(got), string(backwards(payload))) || r.Record(0).Strings(0) != nil {
				t.Errorf("byte strings %q", got)
			}
		}
	}
	values := [][]byte{ops[0].AppendReference(nil, []byte("ab")), ops[1].AppendReference(nil, []byte("ab"))}
	if got, want := string(operator.JSON.Append(nil, ops[1:], 2, values[1:])), `{"bytes":2,"echo":{"first":97,"back":"ba","size":"2"}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPartsWithByteStrings: a result is divided by the actual size of its byte strings. An error names a record that
// exceeds a part.
func TestPartsWithByteStrings(t *testing.T) {
	ops := echoes(t, "echo")
	var records [][]byte
	for i := range 400 {
		records = append(records, corpus.Text(uint64(i), i*i%3000))
	}
	var results table.Table
	fill(t, &results, ops, records, 50)
	for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		const limit = 64 << 10
		_, parts, err := results.Parts(nil, f, limit, nil)
		if err != nil || len(parts) < 5 {
			t.Fatalf("%v: %d parts, %v", f, len(parts), err)
		}
		for _, p := range parts {
			if len(p.Body) > limit {
				t.Errorf("%v: a part of %d bytes", f, len(p.Body))
			}
			if err := results.Check(p.Body, f, p.From, p.To); err != nil {
				t.Errorf("%v: %v", f, err)
			}
		}
		var large *table.RecordTooLargeError
		if _, _, err := results.Parts(nil, f, 2000, nil); err == nil || !strings.Contains(fmt.Sprintf("%T", err), "RecordTooLarge") {
			t.Errorf("%v: %v, %v", f, err, large)
		}
	}
}

// TestByteStringsAllocateNothingPerRecord covers the path from a batch's results to a body.
func TestByteStringsAllocateNothingPerRecord(t *testing.T) {
	ops := echoes(t, "echo")
	kernels, err := Kernels(ops)
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernels[0].Bind(ops[0].Params())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		count := func(n int) float64 {
			data, offsets := corpus.Pack(bytesOf(n))
			memory := make([]byte, kernel.Needs(device.Shape{Rows: n, Bytes: len(data)}).Result)
			if err := kernel.Run(data, offsets, nil, memory, func(n int, fn func(int)) {
				for i := range n {
					fn(i)
				}
			}); err != nil {
				t.Fatal(err)
			}
			var results table.Table
			var dst, scratch []byte
			return testing.AllocsPerRun(5, func() {
				results.Reset(ops, n)
				results.Put(0, 0, memory[:n*ops[0].Stride()])
				results.PutStrings(0, 0, n, memory, offsets, 0)
				dst = results.Append(dst[:0], f, 0, n)
				for i := range n {
					scratch = scratch[:0]
					operator.Value(ops[0], memory, offsets, i, &scratch)
				}
			})
		}
		if few, many := count(10), count(5000); many > few+3 {
			t.Errorf("%v: %v allocations for 10 records, %v for 5000", f, few, many)
		}
	}
}

func bytesOf(n int) [][]byte {
	records := make([][]byte, n)
	for i := range records {
		records[i] = []byte("a record of some bytes")
	}
	return records
}

// TestTheTableHasABoundWithByteStrings compares the memory of a table with its bound.
func TestTheTableHasABoundWithByteStrings(t *testing.T) {
	ops, records := echoes(t, "echo"), bytesOf(3000)
	for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		var results table.Table
		fill(t, &results, ops, records, 100)
		results.Append(nil, f, 0, len(records))
		if got, maximum := results.Size(), table.MaxSize(f, ops, len(records), operator.StringBytes(ops, len(records), total(records))); got > maximum {
			t.Errorf("%v: the table has %d bytes, and the bound is %d", f, got, maximum)
		}
	}
}
