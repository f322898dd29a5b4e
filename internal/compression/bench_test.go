package compression

import (
	"bytes"
	"io"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// english returns n bytes of words. The frequencies and lengths of the words resemble English, so zstd compresses them 3:1.
func english(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([][]byte, 8000)
	for i := range words {
		for range 1 + bits.Len(uint(i))/2 + r.IntN(4) {
			words[i] = append(words[i], "etaoinshrdlucmfwygpbvkxqjz"[min(r.IntN(26), r.IntN(26))])
		}
	}
	zipf := rand.NewZipf(r, 1.3, 4, uint64(len(words)-1))
	var text []byte
	for len(text) < n {
		text = append(append(text, words[zipf.Uint64()]...), ' ')
	}
	return text[:n]
}

func BenchmarkDecompress(b *testing.B) {
	body := english(512 << 10)
	for _, w := range writers {
		b.Run(strings.ReplaceAll(w.name, " ", "-"), func(b *testing.B) {
			var d Decompressor
			compressed := w.write(body)
			dst, err := d.Append(nil, w.encoding, compressed, 1<<20)
			must(err)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				dst, _ = d.Append(dst[:0], w.encoding, compressed, 1<<20)
			}
			b.ReportMetric(float64(len(body))/float64(len(compressed)), "ratio")
		})
	}
}

// BenchmarkLibraryReaders is the baseline for BenchmarkDecompress.
func BenchmarkLibraryReaders(b *testing.B) {
	body := english(512 << 10)
	for _, w := range writers {
		if w.name != "lz4" && w.name != "s2" && w.name != "zstd streamed" && w.name != "gzip" {
			continue
		}
		b.Run(strings.ReplaceAll(w.name, " ", "-"), func(b *testing.B) {
			source := bytes.NewReader(w.write(body))
			reader := libraryReader(w.encoding, source)
			dst := make([]byte, len(body))
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				_, err := source.Seek(0, io.SeekStart)
				must(err)
				switch r := reader.(type) {
				case *zstd.Decoder:
					must(r.Reset(source))
				case *gzip.Reader:
					must(r.Reset(source))
				case *lz4.Reader:
					r.Reset(source)
				case *s2.Reader:
					r.Reset(source)
				}
				_, err = io.ReadFull(reader, dst)
				must(err)
			}
		})
	}
}

func BenchmarkCompress(b *testing.B) {
	body := english(512 << 10)
	for _, e := range ofResults {
		b.Run(e.String(), func(b *testing.B) {
			var c Compressor
			dst := c.Append(nil, e, body)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				dst = c.Append(dst[:0], e, body)
			}
			b.ReportMetric(float64(len(body))/float64(len(dst)), "ratio")
		})
	}
}
