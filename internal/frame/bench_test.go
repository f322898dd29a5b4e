package frame_test

import (
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"millrace/internal/frame"
)

const (
	frameBytes  = 512 << 10
	recordBytes = 256
)

var words = []string{"the", "record", "of", "a", "message", "and", "its", "frame", "holds", "many", "small", "values", "that", "travel", "together", "to"}

// english returns text records that fill a frame.
func english() [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	records := make([][]byte, frameBytes/recordBytes)
	for i := range records {
		var text []byte
		for len(text) < recordBytes {
			text = append(append(text, words[random.IntN(len(words))]...), ' ')
		}
		records[i] = text[:recordBytes]
	}
	return records
}

// benchmarkBodies returns a frame of each kind. Arrow frames have one column named text.
func benchmarkBodies(t testing.TB) []struct {
	name    string
	framing frame.Framing
	body    []byte
} {
	random := rand.New(rand.NewPCG(3, 4))
	records := english()
	chunks := [][][]byte{records}
	return []struct {
		name    string
		framing frame.Framing
		body    []byte
	}{
		{"newline", frame.NewlineDelimited, encode(frame.NewlineDelimited, random, records)},
		{"length", frame.LengthDelimited, encode(frame.LengthDelimited, random, records)},
		{"varint", frame.VarintLengthDelimited, encode(frame.VarintLengthDelimited, random, records)},
		{"arrow", frame.Arrow, textStream(t, arrow.BinaryTypes.String, chunks)},
		{"arrow large", frame.Arrow, textStream(t, arrow.BinaryTypes.LargeString, chunks)},
		{"arrow view", frame.Arrow, textStream(t, arrow.BinaryTypes.StringView, chunks)},
		{"arrow dictionary", frame.Arrow, dictionaryBody(t, records)},
		{"arrow lz4", frame.Arrow, textStream(t, arrow.BinaryTypes.String, chunks, compressions["lz4"]...)},
		{"arrow zstd", frame.Arrow, textStream(t, arrow.BinaryTypes.String, chunks, compressions["zstd"]...)},
		{"none", frame.None, make([]byte, frameBytes)},
	}
}

// dictionaryBody returns a frame with a dictionary-encoded column of 64 values.
func dictionaryBody(t testing.TB, records [][]byte) []byte {
	typ := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}
	indices := make([]int, len(records))
	for i := range indices {
		indices[i] = i % 64
	}
	rows, _ := encoded(t, typ, records[:64], indices)
	return stream(t, []field{{"text", typ, []arrow.Array{rows}}})
}

// BenchmarkFill measures Open and Fill together. The batch has the form of streams.Batch.
func BenchmarkFill(b *testing.B) {
	for _, c := range benchmarkBodies(b) {
		b.Run(c.name, func(b *testing.B) {
			s := frame.Splitter{Framing: c.framing}
			into := newBatch(4<<20, 1<<16)
			var f frame.Frame
			b.SetBytes(frameBytes)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Open(&f, "", c.body); err != nil {
					b.Fatal(err)
				}
				into.reset()
				for cursor := f.Cursor(); !cursor.Done(); {
					cursor.Fill(into, 1<<16)
				}
				if into.bytes != frameBytes {
					b.Fatalf("the batch has %d bytes", into.bytes)
				}
			}
		})
	}
}

// BenchmarkCopy only copies the bytes of a frame. Its rate is the upper bound for BenchmarkFill.
func BenchmarkCopy(b *testing.B) {
	from, to := make([]byte, frameBytes), make([]byte, frameBytes)
	b.SetBytes(frameBytes)
	for b.Loop() {
		copy(to, from)
	}
}

// TestAWarmFrameAllocatesNothing: only the decompressor of an Arrow stream allocates memory, per buffer.
func TestAWarmFrameAllocatesNothing(t *testing.T) {
	for _, c := range benchmarkBodies(t) {
		maximum := 0.0
		if c.name == "arrow lz4" || c.name == "arrow zstd" {
			maximum = 10
		}
		var f frame.Frame
		s := frame.Splitter{Framing: c.framing}
		into := newBatch(4<<20, 1<<16)
		var got float64
		// The test uses the minimum, because a garbage collection may empty the decompressors' pools during a run.
		for range 3 {
			got = testing.AllocsPerRun(20, func() {
				if err := s.Open(&f, "", c.body); err != nil {
					t.Fatal(err)
				}
				into.reset()
				cursor := f.Cursor()
				cursor.Fill(into, 1<<16)
			})
			if got <= maximum {
				break
			}
		}
		if got > maximum {
			t.Errorf("%s: a frame of %d records costs %.0f allocations, want at most %.0f", c.name, f.Records(), got, maximum)
		}
	}
}
