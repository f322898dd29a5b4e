package jsonfield_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/internal/jsonfield"
)

// lines returns 512 KiB of JSON lines. The text of each line has the given number of characters. With escapes, the text has a
// line break every 80 characters.
func lines(characters int, escapes bool) (records [][]byte, bytes int64) {
	const sentence = "the record of a message and its frame holds many small values that travel together "
	text := strings.Repeat(sentence, characters/len(sentence)+1)[:characters]
	if escapes {
		var broken strings.Builder
		for ; len(text) > 80; text = text[80:] {
			broken.WriteString(text[:80] + `\n`)
		}
		text = broken.String() + text
	}
	for i := 0; bytes < 512<<10; i++ {
		record := []byte(fmt.Sprintf(`{"id":"doc-%06d","text":"%s","lang":"en"}`, i, text))
		records, bytes = append(records, record), bytes+int64(len(record))
	}
	return records, bytes
}

// BenchmarkScan validates records, finds a member and copies its value, as package frame does.
func BenchmarkScan(b *testing.B) {
	s, err := jsonfield.NewSelector([]string{"text"})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{200, 2000, 20000} {
		for _, escapes := range []bool{false, true} {
			name := fmt.Sprintf("%d bytes", size)
			if escapes {
				name += " with line breaks"
			}
			b.Run(name, func(b *testing.B) {
				records, bytes := lines(size, escapes)
				values := make([]byte, 0, bytes)
				var m jsonfield.Match
				b.SetBytes(bytes)
				b.ReportAllocs()
				for b.Loop() {
					values = values[:0]
					for _, record := range records {
						if fault := s.Scan(record, &m); !fault.IsZero() {
							b.Fatal(fault)
						}
						v := m.Values[0]
						values = jsonfield.Append(values, record[v.Start+1:v.End-1])
					}
				}
			})
		}
	}
}
