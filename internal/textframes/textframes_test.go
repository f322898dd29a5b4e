package textframes

import (
	"bytes"
	"fmt"
	"testing"

	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/frame"
)

func someRecords(n, size int) [][]byte {
	text := corpus.NewVocabulary(1)
	records := make([][]byte, n)
	for i := range records {
		records[i] = text.Append(nil, corpus.Seed(7, i), size)
	}
	return records
}

// TestFramesSplitIntoTheirRecords checks every framing with frames of many records, one record, no records and one empty record.
func TestFramesSplitIntoTheirRecords(t *testing.T) {
	for _, framing := range []frame.Framing{frame.None, frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.Arrow} {
		for _, records := range [][][]byte{someRecords(100, 300), someRecords(1, 20), {{}}, {}} {
			if framing == frame.None && len(records) != 1 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%d", framing, len(records)), func(t *testing.T) {
				body, err := Append([]byte("before"), framing, records)
				if err != nil {
					t.Fatal(err)
				}
				var f frame.Frame
				if err := (&frame.Splitter{Framing: framing}).Open(&f, "", bytes.TrimPrefix(body, []byte("before"))); err != nil {
					t.Fatal(err)
				}
				if f.Records() != len(records) {
					t.Fatalf("the frame has %d records, want %d", f.Records(), len(records))
				}
				for i, r := range records {
					if !bytes.Equal(f.Record(i), r) {
						t.Errorf("record %d is %q, want %q", i, f.Record(i), r)
					}
				}
			})
		}
	}
}

// TestFramesThatCannotBeMade checks that an error names the framing or the number of records.
func TestFramesThatCannotBeMade(t *testing.T) {
	for framing, want := range map[frame.Framing]string{
		frame.None: "a message without a framing holds 1 record, not 2",
		frame.Auto: "no frame can be made with the framing auto: use a specific one",
	} {
		if _, err := Append(nil, framing, someRecords(2, 5)); err == nil || err.Error() != want {
			t.Errorf("%v: the error is %v, want %q", framing, err, want)
		}
	}
}

// TestTextCompressesLikeEnglish checks that zstd compresses a frame of 512 KiB about 3:1.
func TestTextCompressesLikeEnglish(t *testing.T) {
	body, err := Append(nil, frame.NewlineDelimited, someRecords(2048, 256))
	if err != nil {
		t.Fatal(err)
	}
	compressed := new(compression.Compressor).Append(nil, compression.Zstd, body)
	if ratio := float64(len(body)) / float64(len(compressed)); ratio < 2.7 || ratio > 3.3 {
		t.Errorf("the ratio is %.2f, want 2.7 to 3.3", ratio)
	}
	if n := bytes.Count(body, []byte("\n")); n != 2048 {
		t.Errorf("%d line breaks in 2048 records", n)
	}
}
