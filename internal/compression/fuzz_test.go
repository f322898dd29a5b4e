package compression

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"millrace/internal/corpus"
)

func FuzzZstd(f *testing.F)   { fuzz(f, Zstd) }
func FuzzGzip(f *testing.F)   { fuzz(f, Gzip) }
func FuzzLZ4(f *testing.F)    { fuzz(f, LZ4) }
func FuzzSnappy(f *testing.F) { fuzz(f, Snappy) }

// fuzz checks that decompression returns at most limit bytes, or an error of a known kind. The outcome must be the same after
// another body, and the library's reader must agree with each accepted body.
func fuzz(f *testing.F, e Encoding) {
	const limit = 256 << 10
	var d Decompressor
	for _, w := range writers {
		if w.encoding == e {
			for _, body := range [][]byte{nil, []byte("a short body, a short body"), corpus.Text(3, 3000), make([]byte, limit+1)} {
				whole := w.write(body)
				f.Add(whole)
				f.Add(whole[:max(len(whole)-1, 0)])
				f.Add(append(whole, whole...))
			}
		}
	}
	f.Add([]byte("\x1f\x8b\b\x00000000$0\x00\x00"))                                                             // a gzip block that uses an undefined table
	f.Add([]byte("\x1f\x8b\b\x20\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00")) // a gzip member with a reserved flag
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := d.Append([]byte("before"), e, src, limit)
		if string(got[:6]) != "before" || len(got) > 6+limit || cap(got) > 6+limit+maxSlack {
			t.Fatalf("%d bytes with a capacity of %d", len(got), cap(got))
		}
		again, errAgain := new(Decompressor).Append(nil, e, src, limit)
		if fmt.Sprint(err) != fmt.Sprint(errAgain) || err == nil && !bytes.Equal(got[6:], again) {
			t.Fatalf("%v, and with a new decompressor %v", err, errAgain)
		}
		if err != nil {
			var fault *InvalidError
			if !errors.Is(err, ErrTooLarge) && (!errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > int64(len(src))) {
				t.Fatal(err)
			}
			return
		}
		want, err := io.ReadAll(libraryReader(e, bytes.NewReader(src)))
		if err != nil || !bytes.Equal(got[6:], want) {
			t.Fatalf("the library reads %d bytes, %v, and not %d", len(want), err, len(got)-6)
		}
	})
}

func libraryReader(e Encoding, r *bytes.Reader) io.Reader {
	switch e {
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		must(err)
		return z
	case Gzip:
		z, err := gzip.NewReader(r)
		must(err)
		return z
	case LZ4:
		z := lz4.NewReader(r)
		must(z.Apply(lz4.ConcurrencyOption(1)))
		return z
	}
	return s2.NewReader(r)
}
