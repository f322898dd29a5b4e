package broker

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// everyForm returns small frames of every form.
func everyForm() (all []*content) {
	for _, f := range forms {
		all = append(all, newContent(f.filled(100, 1500), 7))
	}
	return all
}

// resultOf returns the correct result of message i.
func resultOf(c *content, i int) []byte {
	return table.Reference(bench.Parse("crc32c"), c.recordsOf(i), nil).Append(nil, operator.Arrow, 0, c.records)
}

// TestMessagesHoldTheirRecords splits messages as a worker does, with the content's options.
func TestMessagesHoldTheirRecords(t *testing.T) {
	for _, c := range everyForm() {
		t.Run(fmt.Sprintf("%v/%v", c.framing, c.encoding), func(t *testing.T) {
			var o ingest.Options
			c.configure(&o)
			for _, i := range []int{0, 3, differentFrames + 3} {
				body, err := new(compression.Decompressor).Append(nil, o.Decompress, c.message(i), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				var f frame.Frame
				if err := o.Split.Open(&f, "", body); err != nil {
					t.Fatal(err)
				}
				want := c.recordsOf(i)
				if f.Records() != 15 || len(want) != 15 {
					t.Fatalf("message %d has %d records, and %d are expected, want 15", i, f.Records(), len(want))
				}
				for r := range want {
					if !bytes.Equal(f.Record(r), want[r]) || len(want[r]) != 100 {
						t.Errorf("record %d of message %d is %q, want %q", r, i, f.Record(r), want[r])
					}
				}
			}
			if bytes.Equal(c.message(0), c.message(1)) || bytes.Equal(c.message(0), newContent(c.form, 8).message(0)) {
				t.Error("two messages are equal, or those of another seed")
			}
		})
	}
}

// TestResultsWithoutADevice checks the results of the plain Go worker, with and without operators. The lengths must be
// equal, or the ratio to a worker that computes nothing is meaningless.
func TestResultsWithoutADevice(t *testing.T) {
	ops := bench.Parse("crc32c")
	for _, c := range append(everyForm(), newContent(single(100), 7)) {
		calc := &calculator{content: c, ops: ops, values: make([][]byte, len(ops))}
		for _, i := range []int{0, 3} {
			got, err := calc.result(c.message(i))
			if err == nil {
				err = c.checker(ops, 4)(i, got)
			}
			if err != nil {
				t.Errorf("%v, %v: the result of message %d: %v", c.framing, c.encoding, i, err)
			}
			if null := c.nullResult(); len(null) != len(got) || bytes.Equal(null, got) {
				t.Errorf("%v, %v: the null result has %d bytes, want %d and other values", c.framing, c.encoding, len(null), len(got))
			}
		}
		if got, want := c.header().Get("Millrace-Records"), c.records; c.framing != frame.None && got != strconv.Itoa(want) {
			t.Errorf("%v: the header has %q records, want %d", c.framing, got, want)
		}
	}
}

// TestWrongResultsOfFramesAreFound checks a frame inside the sample, one outside, and the repetitions of both.
func TestWrongResultsOfFramesAreFound(t *testing.T) {
	ops, c := bench.Parse("crc32c"), everyForm()[0]
	broken := func(i int) []byte {
		result := table.Reference(ops, c.recordsOf(i), nil)
		result.Put(0, 4, []byte{1, 2, 3, 4})
		return result.Append(nil, operator.Arrow, 0, c.records)
	}
	// The sample consists of frame 0 and frame 7, which is the seed.
	check := c.checker(ops, 3*differentFrames)
	for _, i := range []int{0, 1, 7, differentFrames, differentFrames + 1} {
		if err := check(i, resultOf(c, i)); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for _, i := range []int{2*differentFrames + 1, 2*differentFrames + 7} {
		if err := check(i, broken(i)); err == nil || !strings.Contains(err.Error(), "equals that of an earlier result") {
			t.Errorf("message %d, a repetition: the error is %v", i, err)
		}
	}
	check = c.checker(ops, 3*differentFrames)
	for _, i := range []int{0, 7} {
		if err := check(i, broken(i)); err == nil || !strings.Contains(err.Error(), "byte 792 differs") {
			t.Errorf("message %d: the error is %v", i, err)
		}
	}
}

// TestLongRecordsHaveFrames checks that a record larger than a frame has its own frame. The number of tiny records in a
// frame is limited.
func TestLongRecordsHaveFrames(t *testing.T) {
	for size, want := range map[int]int{1: maxFrameRecords, 256: 2048, 512 << 10: 1, 1 << 20: 1} {
		if got := forms[0].filled(size, usualFrameBytes).records; got != want {
			t.Errorf("a frame has %d records of %d bytes, want %d", got, size, want)
		}
	}
	maximum := table.MaxBytes(operator.Arrow, bench.Parse("crc32c"), maxFrameRecords, 0)
	if limit := 1<<20 - maxHeader; maximum > limit {
		t.Errorf("a result can have %d bytes, and a server with the usual max_payload accepts %d", maximum, limit)
	}
}
