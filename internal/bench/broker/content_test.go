package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// everyForm returns small frames of every form with the operators of its row.
func everyForm() (all []*content, ops [][]operator.Operator) {
	for _, f := range forms {
		all, ops = append(all, newContent(f.filled(100, 1500), 7)), append(ops, bench.Parse("crc32c"))
	}
	for _, t := range textForms {
		all, ops = append(all, newContent(t.filled(100, 1500), 7)), append(ops, bench.Parse(t.operators))
	}
	return all, ops
}

// resultOf returns the correct result of message i.
func resultOf(c *content, ops []operator.Operator, i int) (result, error) {
	return newCalculator(c, ops).result(c.message(i))
}

// TestMessagesHoldTheirRecords splits messages as a worker does, with the content's options.
func TestMessagesHoldTheirRecords(t *testing.T) {
	all, ops := everyForm()
	for k, c := range all {
		t.Run(fmt.Sprintf("%v/%v/%v/%v", c.framing, c.encoding, c.field, c.format), func(t *testing.T) {
			o := c.messages(ops[k])
			for _, i := range []int{0, 3, differentFrames + 3} {
				body, err := new(compression.Decompressor).Append(nil, o.Decompress, c.message(i), 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				var f frame.Frame
				if err := o.Split.Open(&f, "", body); err != nil {
					t.Fatal(err)
				}
				records, inputs := c.recordsOf(i)
				if f.Records() != 15 || len(records) != 15 || len(inputs) != 15 {
					t.Fatalf("message %d has %d records, and %d are expected, want 15", i, f.Records(), len(records))
				}
				for r := range records {
					if !bytes.Equal(f.Source(r), records[r]) || len(records[r]) != 100 {
						t.Errorf("record %d of message %d is %q, want %q", r, i, f.Source(r), records[r])
					}
					if !bytes.Equal(f.Record(r), inputs[r]) || (c.field != "") != (len(inputs[r]) < 100) {
						t.Errorf("input %d of message %d is %q, want %q", r, i, f.Record(r), inputs[r])
					}
				}
			}
			if bytes.Equal(c.message(0), c.message(1)) || bytes.Equal(c.message(0), newContent(c.form, 8).message(0)) {
				t.Error("two messages are equal, or messages of two seeds are equal")
			}
		})
	}
}

// TestResultsWithoutADevice checks the results of the plain Go worker, with and without operators. The lengths must be
// equal, or the ratio to a worker that computes nothing is meaningless.
func TestResultsWithoutADevice(t *testing.T) {
	all, operators := everyForm()
	all, operators = append(all, newContent(single(100), 7)), append(operators, bench.Parse("crc32c"))
	for k, c := range all {
		ops := operators[k]
		for _, i := range []int{0, 3} {
			got, err := resultOf(c, ops, i)
			if err == nil {
				err = c.checker(ops, 4)(i, got.header, got.body)
			}
			if err != nil {
				t.Errorf("%+v: the result of message %d: %v", c.form, i, err)
			}
			if c.documents {
				continue // see TestNullResultsOfDocuments
			}
			null, err := c.nullResult()
			if err != nil {
				t.Fatal(err)
			}
			if len(null.body) != len(got.body) || bytes.Equal(null.body, got.body) {
				t.Errorf("%v, %v: the null result has %d bytes, want %d and other values", c.framing, c.encoding, len(null.body), len(got.body))
			}
			if records := got.header.Get("Millrace-Records"); c.framing != frame.None && records != strconv.Itoa(c.records) {
				t.Errorf("%v: the header has %q records, want %d", c.framing, records, c.records)
			}
		}
	}
}

// TestNullResultsOfDocuments checks that the null worker's results have the same size as other results of the same form. Only message 0 may
// have an equal result.
func TestNullResultsOfDocuments(t *testing.T) {
	ops := bench.Parse(nullSize)
	for _, f := range nullForms {
		c := newContent(f.filled(100, 1500), 7)
		null, err := c.nullResult()
		if err == nil {
			err = c.checker(nil, 4)(3, null.header, null.body)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := resultOf(c, ops, 3)
		if err != nil || len(got.body) != len(null.body) || c.checker(nil, 4)(3, got.header, got.body) == nil {
			t.Errorf("%+v: the null result has %d bytes, and the result of message 3 has %d, error %v", f, len(null.body), len(got.body), err)
		}
	}
}

// TestFilteredResults checks the numbers of records that a client reads in the results of each form with a filter. It compares annotated
// results with the documents.
func TestFilteredResults(t *testing.T) {
	all, ops := everyForm()
	filtered := 0
	for k, c := range all {
		if c.filter == "" {
			continue
		}
		filtered++
		got, err := resultOf(c, ops[k], 3)
		if err != nil {
			t.Fatal(err)
		}
		records, _ := c.recordsOf(3)
		var kept []int
		if c.format == operator.Arrow {
			kept = arrowNumbers(t, got.body)
		} else {
			kept = annotatedNumbers(t, got.body, records)
		}
		leftOut := strconv.Itoa(len(records) - len(kept))
		if got.header.Get(client.HeaderRecords) != strconv.Itoa(len(kept)) || got.header.Get(client.HeaderFiltered) != leftOut {
			t.Errorf("%+v: the headers are %v, and the result has the records %v", c.form, got.header, kept)
		}
		if c.filter == everySecond && !slices.Equal(kept, []int{0, 2, 4, 6, 8, 10, 12, 14}) || len(kept) == 0 || len(kept) == len(records) {
			t.Errorf("%+v: the result has the records %v", c.form, kept)
		}
	}
	if filtered == 0 {
		t.Error("no form has a filter")
	}
}

func arrowNumbers(t *testing.T, body []byte) (numbers []int) {
	t.Helper()
	r, err := arrow.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.Numbers {
		numbers = append(numbers, int(n))
	}
	return numbers
}

// annotatedNumbers checks that each line of body is a document with its result, and returns the documents' indices.
func annotatedNumbers(t *testing.T, body []byte, documents [][]byte) (numbers []int) {
	t.Helper()
	for line := range bytes.Lines(body) {
		var document struct {
			ID       int
			Text     string
			Millrace struct{ Record int }
		}
		if err := json.Unmarshal(line, &document); err != nil {
			t.Fatal(err)
		}
		n := document.Millrace.Record
		if want := textframes.AppendDocument(nil, n, textField, []byte(document.Text)); document.ID != n || !bytes.Equal(documents[n], want) {
			t.Errorf("the document is %s, want %s", line, documents[n])
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// TestWrongResultsOfFramesAreFound checks a frame inside the sample, one outside, and the repetitions of both.
func TestWrongResultsOfFramesAreFound(t *testing.T) {
	ops, c := bench.Parse("crc32c"), newContent(forms[0].filled(100, 1500), 7)
	resultWith := func(i int, change func(*table.Table)) result {
		_, inputs := c.recordsOf(i)
		t := table.Reference(ops, inputs, nil)
		change(t)
		return c.newResult(t, 0)
	}
	right := func(*table.Table) {}
	wrong := func(t *table.Table) { t.Put(0, 4, []byte{1, 2, 3, 4}) }
	// The sample consists of frame 0 and frame 7, which is the seed.
	check := c.checker(ops, 3*differentFrames)
	for _, i := range []int{0, 1, 7, differentFrames, differentFrames + 1} {
		r := resultWith(i, right)
		if err := check(i, r.header, r.body); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for _, i := range []int{2*differentFrames + 1, 2*differentFrames + 7} {
		r := resultWith(i, wrong)
		if err := check(i, r.header, r.body); err == nil || !strings.Contains(err.Error(), "equals that of an earlier result") {
			t.Errorf("message %d, a repetition: the error is %v", i, err)
		}
	}
	check = c.checker(ops, 3*differentFrames)
	for _, i := range []int{0, 7} {
		r := resultWith(i, wrong)
		if err := check(i, r.header, r.body); err == nil || !strings.Contains(err.Error(), "byte 792 differs") {
			t.Errorf("message %d: the error is %v", i, err)
		}
	}
	r := resultWith(0, right)
	r.header.Set(client.HeaderFiltered, "1")
	if err := c.checker(ops, 1)(0, r.header, r.body); err == nil || !strings.Contains(err.Error(), `Millrace-Filtered is "1", want ""`) {
		t.Errorf("the error about a header is %v", err)
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
	if got := textForms[0].filled(100, usualFrameBytes).records; got != maxFrameDocuments {
		t.Errorf("a frame has %d documents of 100 bytes, want %d", got, maxFrameDocuments)
	}
	maximum := table.MaxBytes(operator.Arrow, bench.Parse("crc32c"), maxFrameRecords, 0)
	if limit := 1<<20 - maxHeader; maximum > limit {
		t.Errorf("a result can have %d bytes, and a server with the usual max_payload accepts %d", maximum, limit)
	}
}
