package frame_test

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"millrace/internal/frame"
	"millrace/internal/record"
)

// TestAnExcludedRecordIsAnEmptyRow: rows remain consecutive records, including rows that are copied as a run.
func TestAnExcludedRecordIsAnEmptyRow(t *testing.T) {
	records := [][]byte{[]byte("one"), []byte("two"), {}, []byte("four")}
	for name, in := range map[string]struct {
		framing frame.Framing
		body    []byte
	}{
		"newline": {frame.NewlineDelimited, []byte("one\ntwo\n\nfour")},
		"arrow":   {frame.Arrow, textStream(t, arrow.BinaryTypes.String, [][][]byte{records})},
	} {
		t.Run(name, func(t *testing.T) {
			f := &frame.Frame{}
			if err := (&frame.Splitter{Framing: in.framing, MaxRecord: 100}).Open(f, "", in.body); err != nil {
				t.Fatal(err)
			}
			f.Exclude(1, record.DeviceFault)
			b, c := newBatch(100, 10), f.Cursor()
			if n := c.Fill(b, 10); n != len(records) {
				t.Fatalf("%d of %d records", n, len(records))
			}
			for i, row := range b.rows() {
				want := records[i]
				if i == 1 {
					want = nil
				}
				if !bytes.Equal(row, want) {
					t.Errorf("row %d is %q, want %q", i, row, want)
				}
			}
			if f.Status(1) != record.DeviceFault || string(f.Record(1)) != "two" {
				t.Errorf("record 1 is %v with the bytes %q", f.Status(1), f.Record(1))
			}
		})
	}
}
