package table

import (
	"bytes"
	"compress/flate"
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// deflate is a compressor for results.
func deflate(dst, src []byte) []byte {
	out := bytes.NewBuffer(dst)
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(src)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err)
	}
	return out.Bytes()
}

// checkParts fails the test unless the parts cover all records in order and equal the output of Append. A part has at
// most limit bytes.
func checkParts(t *testing.T, table *Table, parts []Part, f operator.Format, limit int, compress func(dst, src []byte) []byte) {
	t.Helper()
	next := 0
	for _, p := range parts {
		if p.From != next || p.To <= p.From || len(p.Body) > limit {
			t.Fatalf("%v, limit %d: after %d records, a part of %d to %d with %d bytes", f, limit, next, p.From, p.To, len(p.Body))
		}
		want := table.Append(nil, f, p.From, p.To)
		if compress != nil {
			want = compress(nil, want)
		}
		if !bytes.Equal(p.Body, want) {
			t.Fatalf("%v, limit %d: the body of %d to %d differs from the output of Append", f, limit, p.From, p.To)
		}
		next = p.To
	}
	if next != table.Records() {
		t.Fatalf("%v, limit %d: the parts end at record %d of %d", f, limit, next, table.Records())
	}
}

func TestPartsHaveAllRecordsWithinTheLimit(t *testing.T) {
	table := someTable(parseList(t, "crc32c,minhash?k=3&hashes=5"), 2000, 10)
	for _, f := range formats {
		for _, limit := range []int{1500, 5000, 20_000, 60_000, 1 << 20} {
			for _, compress := range []func(dst, src []byte) []byte{nil, deflate} {
				bodies, parts, err := table.Parts([]byte("before"), f, limit, compress)
				if err != nil {
					t.Fatalf("%v, limit %d: %v", f, limit, err)
				}
				checkParts(t, table, parts, f, limit, compress)
				total := len("before")
				for _, p := range parts {
					total += len(p.Body)
				}
				if len(bodies) != total || !bytes.HasPrefix(bodies, []byte("before")) {
					t.Errorf("%v, limit %d: %d bytes in all, and the parts have %d", f, limit, len(bodies), total)
				}
			}
		}
	}
}

// TestPartsCostFewEncodings: the table is encoded once per part, once for the estimate, and a few times for wrong
// estimates. A part is at least half full.
func TestPartsCostFewEncodings(t *testing.T) {
	table := someTable(parseList(t, "crc32c,minhash?k=3&hashes=5"), 5000, 10)
	for _, f := range formats {
		for _, limit := range []int{20_000, 50_000, 1 << 20} {
			encodings := 0
			count := func(dst, src []byte) []byte {
				encodings++
				return append(dst, src...)
			}
			_, parts, err := table.Parts(nil, f, limit, count)
			if err != nil {
				t.Fatal(err)
			}
			if maximum := len(parts) + len(parts)/4 + 2; encodings > maximum {
				t.Errorf("%v, limit %d: %d encodings for %d parts", f, limit, encodings, len(parts))
			}
			for _, p := range parts[:len(parts)-1] {
				if len(p.Body) < limit/2 {
					t.Errorf("%v, limit %d: a part of %d bytes", f, limit, len(p.Body))
				}
			}
		}
	}
}

func TestOneEncodingIfEverythingFits(t *testing.T) {
	table := someTable(parseList(t, "crc32c"), 2000, 10)
	for _, f := range formats {
		encodings := 0
		count := func(dst, src []byte) []byte {
			encodings++
			return append(dst, src...)
		}
		_, parts, err := table.Parts(nil, f, MaxBytes(f, table.ops, 2000, 0), count)
		if err != nil || len(parts) != 1 || encodings != 1 {
			t.Errorf("%v: %d parts after %d encodings (%v)", f, len(parts), encodings, err)
		}
	}
}

// TestPartsOfUnevenRecords: the first records compress well and later records hardly compress, so every estimate is wrong.
func TestPartsOfUnevenRecords(t *testing.T) {
	ops := parseList(t, "minhash?k=3&hashes=64")
	var table Table
	table.Reset(ops, 3000)
	zeros := make([]byte, 256)
	for i := range 3000 {
		result := zeros
		if i%700 > 300 {
			result = ops[0].AppendReference(nil, []byte{byte(i), byte(i >> 8), 7, 9})
		}
		table.Put(0, i, result)
	}
	for _, f := range formats {
		encodings := 0
		count := func(dst, src []byte) []byte {
			encodings++
			return deflate(dst, src)
		}
		_, parts, err := table.Parts(nil, f, 40_000, count)
		if err != nil {
			t.Fatal(err)
		}
		checkParts(t, &table, parts, f, 40_000, deflate)
		if encodings > 5*len(parts)+20 {
			t.Errorf("%v: %d encodings for %d parts", f, encodings, len(parts))
		}
	}
}

func TestPartsNameARecordThatExceedsTheLimit(t *testing.T) {
	ops := parseList(t, "minhash?hashes=128")
	table := someTable(ops, 10, 0)
	for i := range 10 {
		if i != 6 {
			table.SetStatus(i, record.OperatorError)
		}
	}
	const limit = 500 // between the sizes of an error line and a signature
	var tooLarge *RecordTooLargeError
	_, _, err := table.Parts(nil, operator.JSON, limit, nil)
	if !errors.As(err, &tooLarge) || tooLarge.Record != 6 || tooLarge.Bytes <= limit || tooLarge.Limit != limit {
		t.Fatalf("error %v", err)
	}
	if !strings.Contains(err.Error(), "record 6: its result has") {
		t.Errorf("error %q", err)
	}
	table.SetStatus(tooLarge.Record, record.TooLarge)
	_, parts, err := table.Parts(nil, operator.JSON, limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, table, parts, operator.JSON, limit, nil)
}

// TestPartsNameAllRecordsThatExceedTheLimit also bounds the work. Without the bound, each of those records would cause many others to be
// encoded again.
func TestPartsNameAllRecordsThatExceedTheLimit(t *testing.T) {
	const records, limit = 20_000, 2000
	for name, isLarge := range map[string]func(i int) bool{
		"every second": func(i int) bool { return i%2 == 1 },
		"a few":        func(i int) bool { return i%1000 == 999 },
		"all":          func(int) bool { return true },
	} {
		large := `"` + strings.Repeat("x", limit) + `"`
		fields, want := make(rows, records), []int(nil)
		for i := range fields {
			fields[i] = []string{"7"}
			if isLarge(i) {
				fields[i], want = []string{large}, append(want, i)
			}
		}
		table := keptTable(t, []string{"id"}, fields, nil)
		encoded, all := 0, len(table.Append(nil, operator.JSON, 0, records))
		count := func(dst, src []byte) []byte {
			encoded += len(src)
			return append(dst, src...)
		}
		var single *RecordTooLargeError
		if _, _, err := table.Parts(nil, operator.JSON, limit, count); !errors.As(err, &single) {
			t.Fatalf("%s: %v", name, err)
		}
		if got := append([]int{single.Record}, single.Others...); !slices.Equal(got, want) {
			t.Errorf("%s: %d records are too large, want %d", name, len(got), len(want))
		}
		if encoded > 4*all {
			t.Errorf("%s: %d bytes were encoded, and the records have %d", name, encoded, all)
		}
	}
}

func TestPartsWithoutRecords(t *testing.T) {
	table := someTable(parseList(t, "crc32c"), 0, 0)
	for _, f := range formats {
		_, parts, err := table.Parts(nil, f, 1000, deflate)
		if err != nil || len(parts) != 1 || (len(parts[0].Body) == 0) != (f != operator.Arrow) || parts[0].To != 0 {
			t.Errorf("%v: %+v, %v", f, parts, err)
		}
	}
	if _, _, err := table.Parts(nil, operator.Arrow, 10, nil); err == nil {
		t.Error("a schema of more than 10 bytes fits into 10")
	}
}

func FuzzParts(f *testing.F) {
	f.Add(uint16(500), uint16(1000), uint8(3), uint8(0))
	f.Add(uint16(2000), uint16(60000), uint8(0), uint8(1))
	f.Add(uint16(3), uint16(80), uint8(1), uint8(2))
	ops := parseList(f, "crc32c")
	f.Fuzz(func(t *testing.T, n, limit uint16, failing, format uint8) {
		table, form := someTable(ops, int(n)%3000, int(failing)), formats[int(format)%len(formats)]
		var tooLarge *RecordTooLargeError
		_, parts, err := table.Parts(nil, form, int(limit), nil)
		switch {
		case table.Records() == 0:
		case errors.As(err, &tooLarge):
			if got := len(table.Append(nil, form, tooLarge.Record, tooLarge.Record+1)); got <= int(limit) || got != tooLarge.Bytes {
				t.Fatalf("%v, but it has %d bytes", err, got)
			}
		case err != nil:
			t.Fatal(err)
		default:
			checkParts(t, table, parts, form, int(limit), nil)
		}
	})
}

func BenchmarkParts(b *testing.B) {
	for _, f := range formats {
		b.Run(f.String(), func(b *testing.B) {
			table := benchTable(parseList(b, "crc32c,minhash"))
			var bodies []byte
			var parts []Part
			b.SetBytes(512 << 10)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if bodies, parts, err = table.Parts(bodies[:0], f, 256<<10, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(parts)), "parts")
		})
	}
}
