package table

import (
	"bytes"
	"strings"
	"testing"

	"millrace/internal/operator"
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

// TestCheckSeesEveryBit: Check detects any changed bit, an extra byte, and every truncation.
func TestCheckSeesEveryBit(t *testing.T) {
	table := someTable(append(parseList(t, "crc32c,minhash?k=3&hashes=2"), odd{}, texts{}), 9, 3)
	for _, f := range formats {
		body := table.Append(nil, f, 1, 9)
		for i := range body {
			for bit := range 8 {
				body[i] ^= 1 << bit
				if table.Check(body, f, 1, 9) == nil {
					t.Errorf("%v: Check didn't detect the change of bit %d of byte %d", f, bit, i)
				}
				body[i] ^= 1 << bit
			}
			if table.Check(body[:i], f, 1, 9) == nil {
				t.Errorf("%v: Check didn't detect a truncation to %d bytes", f, i)
			}
		}
		if table.Check(append(body, 0), f, 1, 9) == nil {
			t.Errorf("%v: Check didn't detect an additional byte", f)
		}
	}
}

func TestCheckNamesTheFirstDifference(t *testing.T) {
	table := someTable(parseList(t, "crc32c"), 9, 3)
	body := table.Append(nil, operator.Binary, 2, 9)
	body[20] ^= 1
	err := table.Check(body, operator.Binary, 2, 9)
	if err == nil || !strings.Contains(err.Error(), "records 2 to 8") || !strings.Contains(err.Error(), "byte 20 differs") {
		t.Errorf("error %v", err)
	}
}

// FuzzCheck searches for a body that makes Check panic, or that passes Check but that Append wouldn't produce.
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
