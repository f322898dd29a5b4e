package table

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"millrace/internal/operator"
	"millrace/internal/record"
)

func TestCheckTakesWhatIsRight(t *testing.T) {
	table := someTable(append(parseList(t, "crc32c,minhash?k=3&hashes=5"), odd{}, texts{}), 40, 3)
	for _, f := range formats {
		for _, r := range append(ranges, [2]int{4, 4}) {
			body := someTable(table.ops, 40, 3).Append(nil, f, r[0], r[1])
			if err := table.Check(body, f, r[0], r[1]); err != nil {
				t.Errorf("%v of %v: %v", f, r, err)
			}
		}
	}
}

// Check detects a change of any bit, a byte more, and every truncation.
func TestCheckSeesEveryBit(t *testing.T) {
	table := someTable(append(parseList(t, "crc32c,minhash?k=3&hashes=2"), odd{}, texts{}), 9, 3)
	for _, f := range formats {
		body := table.Append(nil, f, 1, 9)
		for i := range body {
			for bit := range 8 {
				body[i] ^= 1 << bit
				if table.Check(body, f, 1, 9) == nil {
					t.Errorf("%v: bit %d of byte %d changed, and there is no error", f, bit, i)
				}
				body[i] ^= 1 << bit
			}
			if table.Check(body[:i], f, 1, 9) == nil {
				t.Errorf("%v: truncated to %d bytes, and there is no error", f, i)
			}
		}
		if table.Check(append(body, 0), f, 1, 9) == nil {
			t.Errorf("%v: a byte more, and there is no error", f)
		}
	}
}

// changed returns the body of a table with one change.
func changed(f operator.Format, ops []operator.Operator, change func(*Table)) []byte {
	records, statuses := someRecords(40, 3)
	table := Reference(ops, records, statuses)
	change(table)
	return table.Append(nil, f, 5, 30)
}

func TestCheckNamesTheFirstDifference(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=3&hashes=4")
	table := someTable(ops, 40, 3)
	good := func() int { // a record that is OK, not the first
		for i := 11; ; i++ {
			if table.Status(i) == record.OK {
				return i
			}
		}
	}()
	name := "record " + string(rune('0'+good/10)) + string(rune('0'+good%10))
	result := table.result(1, good)
	third := binary.LittleEndian.Uint32(result[8:])
	other := bytes.Clone(result)
	binary.LittleEndian.PutUint32(other[8:], third^1)
	for _, f := range formats {
		for what, c := range map[string]struct {
			change func(*Table)
			want   string
		}{
			"status":  {func(t *Table) { t.SetStatus(good, record.DeviceFault) }, name + ", status: got device_fault, want ok"},
			"crc32c":  {func(t *Table) { t.Put(0, good, []byte{1, 2, 3, 4}) }, "crc32c: differs at byte"},
			"minhash": {func(t *Table) { t.Put(1, good, other) }, "minhash: differs at byte"},
		} {
			err := table.Check(changed(f, ops, c.change), f, 5, 30)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%v, %s: error %v, want %q", f, what, err, c.want)
			}
		}
		if f != operator.Binary { // which has no lengths
			err := table.Check(changed(f, ops, func(t *Table) { t.SetLength(good, 9999) }), f, 5, 30)
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "9999") {
				t.Errorf("%v, length: error %v", f, err)
			}
		}
		err := table.Check(table.Append(nil, f, 5, 29), f, 5, 30)
		if err == nil || !strings.Contains(err.Error(), "records: got 24, want 25") {
			t.Errorf("%v, a record less: error %v", f, err)
		}
	}
}

func TestCheckSaysWhyABodyIsNoResult(t *testing.T) {
	ops := parseList(t, "crc32c")
	table := someTable(ops, 9, 2)
	body := table.Append(nil, operator.Binary, 0, 9)
	edit := func(at int, by byte) []byte {
		b := bytes.Clone(body)
		b[at] = by
		return b
	}
	ok := 0
	for table.Status(ok) != record.OK || table.lengths[ok] == 0 { // crc32c of nothing is zero
		ok++
	}
	statuses := 16 + 8 + 8
	for _, c := range []struct {
		f    operator.Format
		body []byte
		want string
	}{
		{operator.Binary, []byte("oops, no result"), `start with "MILL"`},
		{operator.Binary, edit(4, 1), "version 1: 44 extra bytes"},
		{operator.Binary, table.AppendSingle(nil, operator.Binary), "version 1: want version 2"},
		{operator.Binary, edit(6, 2), "operator 2 of 2 at byte 32: spec: truncated"},
		{operator.Binary, someTable(append(parseList(t, "minhash"), ops...), 9, 2).Append(nil, operator.Binary, 0, 9), "operators: got 2, want 1"},
		{operator.Binary, edit(12, 3), "first record: got 3, want 0"},
		{operator.Binary, edit(11, 0x7F), "statuses: truncated: 48 of"},
		{operator.Binary, edit(20, 8), "operator 1 of 1 (crc32c) at byte 44: values: truncated: 36 of 72 bytes"},
		{operator.Binary, someTable(parseList(t, "minhash?hashes=2"), 9, 2).Append(nil, operator.Binary, 0, 9), "8 bytes per record"},
		{operator.Binary, edit(24, 'C'), `got "Crc32c"`},
		{operator.Binary, edit(31, 1), "padding is not zero"},
		{operator.Binary, edit(statuses+ok, 9), "Status(9), but its value isn't zero"},
		{operator.Binary, edit(statuses+ok, 2), "too_large, but its value isn't zero"},
		{operator.Binary, append(bytes.Clone(body), 0), "1 extra bytes"},
		{operator.JSON, []byte("{}"), "doesn't end with LF"},
		{operator.JSON, bytes.Repeat([]byte("oops\n"), 9), "record 0: not a JSON result"},
		{operator.JSON, bytes.Repeat([]byte(`{"error":{"reason":"ok"}}`+"\n"), 9), "an error with the reason ok"},
		{operator.JSON, bytes.Repeat([]byte(`{"error":{"reason":"lost"}}`+"\n"), 9), `unknown record status "lost"`},
		{operator.Arrow, []byte("oops"), "not an Arrow stream"},
		{operator.Arrow, append(table.Append(nil, operator.Arrow, 0, 9), 1), "values are right"},
	} {
		err := table.Check(c.body, c.f, 0, 9)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v does not say %q", c.f, err, c.want)
		}
	}
}

// FuzzCheck looks for a body that makes Check panic, and for one that it accepts and Append doesn't return.
func FuzzCheck(f *testing.F) {
	table := someTable(append(parseList(f, "crc32c,minhash?k=3&hashes=2"), odd{}, texts{}), 9, 3)
	for _, form := range formats {
		body := table.Append(nil, form, 0, 9)
		f.Add(body, uint8(form))
		f.Add(body[:len(body)/2], uint8(form))
		f.Add(table.Append(nil, form, 0, 0), uint8(form))
	}
	f.Fuzz(func(t *testing.T, body []byte, format uint8) {
		form := formats[int(format)%len(formats)]
		err := table.Check(body, form, 0, 9)
		if same := bytes.Equal(body, table.Append(nil, form, 0, 9)); same != (err == nil) {
			t.Fatalf("the body is right: %t, and Check returns %v", same, err)
		}
	})
}
