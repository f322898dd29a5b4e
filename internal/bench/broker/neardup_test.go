package broker

import (
	"bytes"
	"strings"
	"testing"

	"millrace/client/arrow"
	"millrace/internal/bench"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// TestVerdictsAreChecked checks correct results of neardup, and then the same results as results of other messages.
func TestVerdictsAreChecked(t *testing.T) {
	ops := bench.Parse("neardup")
	c := newContent(duplicatesForm.filled(300, 30_000), 7)
	check, verdicts := c.checker(ops, 100), textframes.NewVerdicts(ops, 1000)
	hits := 0
	for _, i := range []int{3, 3 + partitions, 3 + 2*partitions} {
		r, err := c.decided(ops, i, func(inputs [][]byte) textframes.Decide {
			keys := verdicts.Keys(inputs)
			return func(t *table.Table, records []uint32) { verdicts.Put(t, records, uint64(i+1), keys) }
		})
		if err == nil {
			err = check(i, r.header, r.body)
		}
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		result, err := arrow.Decode(r.body)
		if err != nil {
			t.Fatal(err)
		}
		for k := range result.Len() {
			if v, _ := result.Neardup(k); v.DuplicateOf != nil {
				hits++
			}
		}
		for other, want := range map[int]string{i + 1: "isn't an earlier record of the partition", i - partitions: ""} {
			if err := check(max(other, 0), r.header, r.body); err == nil || !strings.Contains(err.Error(), want) && other >= partitions {
				t.Errorf("the result of message %d is accepted as the result of message %d: %v", i, other, err)
			}
		}
	}
	if hits < 60 || hits > 120 { // 30 % of 300, with a standard deviation of 8
		t.Errorf("%d of 300 texts are near-duplicates", hits)
	}
	checksums, err := resultOf(c, bench.Parse("crc32c"), 50)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(50, checksums.header, checksums.body); err == nil || !strings.Contains(err.Error(), "has no verdict") {
		t.Errorf("a result without verdicts: %v", err)
	}
}

// TestTextsDiffer checks that messages with near-duplicates don't repeat, and that any message can be made again.
func TestTextsDiffer(t *testing.T) {
	c := newContent(duplicatesForm.filled(100, 500), 7)
	first, same := bytes.Clone(c.message(0)), c.message(differentFrames)
	if bytes.Equal(first, same) || !bytes.Equal(first, c.message(0)) || !bytes.Equal(same, newContent(c.form, 7).message(differentFrames)) {
		t.Error("message 0 equals a later message, or a message changes when it is made again")
	}
	if n := bytes.Count(first, []byte("\n")); n != 5 {
		t.Errorf("message 0 has %d records, want 5", n)
	}
}
