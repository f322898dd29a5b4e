package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"millrace/client"
	"millrace/internal/corpus"
	"millrace/internal/operator"
)

// column is one operator's share of a body.
type column struct {
	spec   string
	stride int
	values [][]byte // nil for a record that isn't OK

	strings [][]byte // byte strings of each record; nil if the operator has none
}

// length returns the length field of the operator's values. The top bit marks an operator with byte strings.
func (c column) length() uint32 {
	if c.strings != nil {
		return uint32(c.stride) | 1<<31
	}
	return uint32(c.stride)
}

// appendStrings appends the byte strings of all records.
func (c column) appendStrings(body []byte) []byte {
	if c.strings == nil {
		return body
	}
	all := bytes.Join(c.strings, nil)
	at := 0
	for _, s := range c.strings {
		body = binary.LittleEndian.AppendUint32(body, uint32(at))
		at += len(s)
	}
	body = binary.LittleEndian.AppendUint32(body, uint32(at))
	return padded(append(body, all...))
}

// version1 and version2 encode results as docs/results.md describes them.
func version1(payloadBytes uint64, columns ...column) []byte {
	body := binary.LittleEndian.AppendUint16([]byte("MILL"), 1)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(columns)))
	body = binary.LittleEndian.AppendUint64(body, payloadBytes)
	for _, c := range columns {
		body = binary.LittleEndian.AppendUint32(body, uint32(len(c.spec)))
		body = binary.LittleEndian.AppendUint32(body, c.length())
		body = padded(append(body, c.spec...))
		body = c.appendStrings(padded(append(body, c.values[0]...)))
	}
	return body
}

func version2(first int, statuses []client.Status, columns ...column) []byte {
	body := binary.LittleEndian.AppendUint16([]byte("MILL"), 2)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(columns)))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(statuses)))
	body = binary.LittleEndian.AppendUint32(body, uint32(first))
	for _, c := range columns {
		body = binary.LittleEndian.AppendUint32(body, uint32(len(c.spec)))
		body = binary.LittleEndian.AppendUint32(body, c.length())
		body = padded(append(body, c.spec...))
	}
	for _, s := range statuses {
		body = append(body, byte(s))
	}
	body = padded(body)
	for _, c := range columns {
		for _, value := range c.values {
			body = append(append(body, value...), make([]byte, c.stride-len(value))...)
		}
		body = c.appendStrings(padded(body))
	}
	return body
}

func padded(body []byte) []byte { return append(body, make([]byte, -len(body)&3)...) }

// example returns a result whose records have all statuses, with strides that aren't multiples of 4.
func example() []byte {
	return version2(7, []client.Status{client.OK, client.Null, client.TooLarge, client.OperatorError, client.OK},
		column{spec: "crc32c", stride: 4, values: [][]byte{{1, 2, 3, 4}, nil, nil, nil, {5, 6, 7, 8}}},
		column{spec: "odd?n=1", stride: 3, values: [][]byte{{1, 2, 3}, nil, nil, nil, {0, 0, 0}}},
		column{spec: "minhash?hashes=2", stride: 8, values: [][]byte{{1, 0, 0, 0, 2, 0, 0, 0}, nil, nil, nil, {255, 255, 255, 255, 0, 0, 0, 1}}},
	)
}

func TestResultOfAFrame(t *testing.T) {
	r, err := client.Decode(example())
	if err != nil {
		t.Fatal(err)
	}
	if r.Version != 2 || r.FirstRecord != 7 || r.Len() != 5 || len(r.Operators) != 3 {
		t.Errorf("version %d, first record %d, %d records, operators %v", r.Version, r.FirstRecord, r.Len(), r.Operators)
	}
	if crc, odd, minhash := r.Operator("crc32c"), r.Operator("odd?n=1"), r.Operator("minhash"); crc != 0 || odd != 1 || minhash != 2 {
		t.Errorf("operators are found at %d, %d, %d", crc, odd, minhash)
	}
	if i := r.Operator("odd?n=2"); i != -1 {
		t.Errorf("an operator with other parameters is found at %d", i)
	}
	var got []string
	for i, record := range r.Records() {
		crc, ok := record.Uint32(0)
		_, odd := record.Uint32(1)
		got = append(got, fmt.Sprintf("%d %v: number %d %v, of 3 bytes %v, %v %v",
			i, record.Status, crc, ok, odd, record.Value(1), record.AppendUint32s(nil, 2)))
	}
	want := []string{
		"7 ok: number 67305985 true, of 3 bytes false, [1 2 3] [1 2]",
		"8 null: number 0 false, of 3 bytes false, [] []",
		"9 too_large: number 0 false, of 3 bytes false, [] []",
		"10 operator_error: number 0 false, of 3 bytes false, [] []",
		"11 ok: number 134678021 true, of 3 bytes false, [0 0 0] [4294967295 16777216]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if v := r.Record(1).Value(0); v != nil {
		t.Errorf("a null has the value %v", v)
	}
	if v := r.Record(0).Value(0); cap(v) != 4 {
		t.Errorf("appending to a value of 4 bytes overwrites the next: its capacity is %d", cap(v))
	}
	for i := range r.Records() {
		if i != 7 {
			t.Errorf("the iteration continues after a break, with record %d", i)
		}
		break
	}
}

func TestEmptyBodyIsAResultWithoutRecords(t *testing.T) {
	for _, body := range [][]byte{nil, version2(0, nil), version2(0, nil, column{spec: "crc32c", stride: 4, values: nil})} {
		r, err := client.Decode(body)
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Records() {
			t.Errorf("%d bytes: record %d", len(body), i)
		}
		if r.Len() != 0 {
			t.Errorf("%d bytes: %d records", len(body), r.Len())
		}
	}
}

// TestResultOfOneRecord decodes results from the worker's encoder of version 1.
func TestResultOfOneRecord(t *testing.T) {
	for _, list := range []string{"crc32c", "minhash", "crc32c,minhash?k=7&hashes=3", "minhash?hashes=1&seed=123456,crc32c"} {
		ops, err := operator.ParseList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, payload := range corpus.Lengths(71, 40) {
			var records [][]byte
			var columns []column
			for _, op := range ops {
				record := op.AppendReference(nil, payload)
				records = append(records, record)
				columns = append(columns, column{spec: op.String(), stride: op.Stride(), values: [][]byte{record}})
			}
			body := operator.Binary.Append(nil, ops, len(payload), records)
			if want := version1(uint64(len(payload)), columns...); !bytes.Equal(body, want) {
				t.Fatalf("%s: the worker writes\n%x, want\n%x", list, body, want)
			}
			r, err := client.Decode(body)
			if err != nil {
				t.Fatal(err)
			}
			if r.Version != 1 || r.PayloadBytes != uint64(len(payload)) || r.Len() != 1 || len(r.Operators) != len(ops) {
				t.Fatalf("%s of %d bytes came back as %+v", list, len(payload), r)
			}
			for i, op := range ops {
				if got := r.Operators[i]; got.Spec != op.String() || got.Name() != op.Name() || got.Stride != op.Stride() {
					t.Errorf("operator %d is %+v, want %v", i, got, op)
				}
				if got := r.Record(0).Value(i); !bytes.Equal(got, records[i]) {
					t.Errorf("%v of %d bytes is %x, want %x", op, len(payload), got, records[i])
				}
			}
		}
	}
}

func TestDecodeRefusesWhatIsNotWhole(t *testing.T) {
	single := version1(7, column{spec: "crc32c", stride: 4, values: [][]byte{{1, 2, 3, 4}}}, column{spec: "minhash?k=7&hashes=3", stride: 12, values: [][]byte{make([]byte, 12)}})
	for _, body := range [][]byte{single, example()} {
		for n := 1; n < len(body); n++ {
			if got, err := client.Decode(body[:n]); err == nil {
				t.Errorf("the first %d of %d bytes decode to %+v", n, len(body), got)
			}
		}
		if _, err := client.Decode(append(bytes.Clone(body), 0)); err == nil || !strings.Contains(err.Error(), "1 extra bytes") {
			t.Errorf("an extra byte: %v", err)
		}
	}
	for name, c := range map[string]struct {
		body []byte
		at   int
		by   byte
		want string
	}{
		"magic":           {single, 0, 'X', `start with "MILL"`},
		"version":         {single, 4, 3, "version 3"},
		"more results":    {single, 6, 3, "operator 3 of 3"},
		"fewer results":   {single, 6, 1, "extra bytes"},
		"padding":         {single, 16 + 8 + len("crc32c"), 1, "padding is not zero"},
		"spec length":     {single, 19, 0xFF, "spec: truncated"},
		"record length":   {single, 23, 0xFF, "record: truncated"},
		"more operators":  {example(), 6, 4, "operator 4 of 4"},
		"more records":    {example(), 11, 0xFF, "statuses: truncated"},
		"stride":          {example(), 23, 0xFF, "operator 1 of 3 (crc32c) at byte 80: values: truncated"},
		"status padding":  {example(), 77, 1, "padding is not zero"},
		"value of a null": {example(), 80 + 4, 1, "operator 1 of 3 (crc32c) at byte 80: record 1 is null"},
	} {
		broken := bytes.Clone(c.body)
		broken[c.at] = c.by
		if _, err := client.Decode(broken); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
	}
}

func TestClaimsAllocateNothing(t *testing.T) {
	for name, body := range map[string][]byte{
		"records":   version2(0, nil, column{spec: "crc32c", stride: 4, values: nil}),
		"operators": version2(0, nil),
		"stride":    version2(0, []client.Status{client.OK}, column{spec: "crc32c", stride: 4, values: [][]byte{nil}}),
	} {
		switch name {
		case "records":
			binary.LittleEndian.PutUint32(body[8:], math.MaxUint32)
		case "operators":
			binary.LittleEndian.PutUint16(body[6:], math.MaxUint16)
		case "stride":
			binary.LittleEndian.PutUint32(body[20:], math.MaxUint32)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := client.Decode(body)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, n, len(body))
		}
	}
}

func TestRecordsAreReadWithoutAllocations(t *testing.T) {
	r, err := client.Decode(example())
	if err != nil {
		t.Fatal(err)
	}
	var sum uint32
	numbers := make([]uint32, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		for _, record := range r.Records() {
			crc, _ := record.Uint32(0)
			numbers = record.AppendUint32s(numbers[:0], 2)
			sum += crc
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if sum == 0 {
		t.Error("no record has a value")
	}
}

// FuzzDecode checks that Decode reads the whole body: encoding the result again yields the same bytes.
func FuzzDecode(f *testing.F) {
	single := version1(7, column{spec: "crc32c", stride: 4, values: [][]byte{{1, 2, 3, 4}}}, column{spec: "odd", stride: 5, values: [][]byte{{1, 2, 3, 4, 5}}})
	for _, body := range [][]byte{single, example(), textExample(), textSingle(), version1(0), version2(3, nil), version2(0, []client.Status{1, 9})} {
		f.Add(body)
		f.Add(body[:len(body)-1])
		f.Add(append(bytes.Clone(body), 0))
	}
	f.Add([]byte("MILL"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := client.Decode(body)
		if err != nil || len(body) == 0 {
			return
		}
		columns := make([]column, len(r.Operators))
		for k, o := range r.Operators {
			columns[k] = column{spec: o.Spec, stride: o.Stride}
			if o.ByteStrings {
				columns[k].strings = [][]byte{}
			}
		}
		var statuses []client.Status
		for _, record := range r.Records() {
			statuses = append(statuses, record.Status)
			for k := range columns {
				columns[k].values = append(columns[k].values, record.Value(k))
				if columns[k].strings != nil {
					columns[k].strings = append(columns[k].strings, record.Strings(k))
				}
				record.Uint32(k)
				record.AppendUint32s(nil, k)
			}
		}
		again := version2(r.FirstRecord, statuses, columns...)
		if r.Version == 1 {
			again = version1(r.PayloadBytes, columns...)
		}
		if !bytes.Equal(again, body) {
			t.Fatalf("%x was decoded and encoded to %x", body, again)
		}
	})
}

func BenchmarkRecords(b *testing.B) {
	const records = 2048
	values := make([][]byte, records)
	for i := range values {
		values[i] = binary.LittleEndian.AppendUint32(nil, uint32(i))
	}
	body := version2(0, make([]client.Status, records), column{spec: "crc32c", stride: 4, values: values})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	var sum uint32
	for b.Loop() {
		r, err := client.Decode(body)
		if err != nil {
			b.Fatal(err)
		}
		for _, record := range r.Records() {
			crc, _ := record.Uint32(0)
			sum += crc
		}
	}
	b.ReportMetric(float64(b.N)*records/b.Elapsed().Seconds(), "records/s")
}
