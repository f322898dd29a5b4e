package compression

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"millrace/internal/corpus"
)

func TestBodiesOfOtherProgramsAreDecompressed(t *testing.T) {
	var d Decompressor             // shared, to show that no body affects the next
	written := map[string][]byte{} // by writer and body
	for range 2 {
		for name, body := range bodies() {
			for _, w := range writers {
				key := w.name + ", " + name
				if written[key] == nil {
					written[key] = w.write(body)
				}
				if len(body) == 0 && w.name == "s2 better with padding" {
					continue // the library doesn't read its own padding, which has no identifier
				}
				got, err := d.Append([]byte("before"), w.encoding, written[key], int64(len(body)))
				if err != nil {
					t.Errorf("%s: %v", key, err)
				} else if string(got) != "before"+string(body) {
					t.Errorf("%s: the decompressed body differs", key)
				}
			}
		}
	}
}

func TestConcatenatedBodiesAreOneBody(t *testing.T) {
	var d Decompressor
	skipped := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}
	for _, w := range writers {
		one := w.write([]byte("first, "))
		whole := append(bytes.Clone(one), w.write([]byte("second"))...)
		want := "first, second"
		if w.encoding == Zstd || w.encoding == LZ4 {
			whole = append(append(bytes.Clone(skipped), whole...), skipped...)
		}
		got, err := d.Append(nil, w.encoding, whole, 1000)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", w.name, got, err)
		}
		if _, err := d.Append(nil, w.encoding, whole, int64(len(want)-1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: the limit applies only to each part: %v", w.name, err)
		}
	}
}

func TestEveryPrefixIsTruncated(t *testing.T) {
	var d Decompressor
	body := corpus.Text(5, 3000)
	for _, w := range writers {
		compressed := append(w.write(body[:1000]), w.write(body[1000:])...)
		middle := len(w.write(body[:1000]))
		for n := range compressed {
			_, err := d.Append(nil, w.encoding, compressed[:n], 1<<20)
			if err == nil && w.ends && n == middle {
				continue // a whole body
			}
			if err == nil && !w.ends {
				rest, cut := compressed[:n], error(nil)
				for len(rest) > 0 && cut == nil {
					_, rest, cut = cutSnappy(rest)
				}
				if cut == nil {
					continue // the format has no end mark, so a prefix of whole chunks is valid
				}
			}
			var fault *InvalidError
			if !errors.As(err, &fault) || fault.Encoding != w.encoding || fault.Offset < 0 || fault.Offset > int64(n) {
				t.Errorf("%s, %d of %d bytes: %v", w.name, n, len(compressed), err)
			}
		}
	}
}

func TestChangedBytesNeverPassAChecksum(t *testing.T) {
	var d Decompressor
	body := corpus.Text(6, 2000)
	for _, w := range writers {
		if w.name == "lz4 without checksum" {
			continue
		}
		compressed := w.write(body)
		for at := range compressed {
			broken := bytes.Clone(compressed)
			broken[at] ^= 0x10
			got, err := d.Append(nil, w.encoding, broken, 1<<20)
			if err == nil && !bytes.Equal(got, body) && !isPrefixOfChunks(w.ends, got, body) {
				t.Errorf("%s: byte %d was changed, and the body changed without an error", w.name, at)
			}
		}
	}
}

// isPrefixOfChunks reports whether a change turned a block into a chunk that readers skip. The framing of Snappy has no
// checksum over the whole body.
func isPrefixOfChunks(ends bool, got, body []byte) bool { return !ends && len(got) < len(body) }

func TestOffsetsNameTheFault(t *testing.T) {
	body := corpus.Text(7, 200_000)
	whole := map[Encoding][]byte{}
	for _, w := range writers {
		whole[w.encoding] = w.write(body)
	}
	flip := func(e Encoding, behind int, at int) []byte {
		b := append(bytes.Clone(whole[e]), whole[e]...)
		b[len(whole[e])+at] ^= 0xFF
		return b[:len(b)-behind]
	}
	for name, c := range map[string]struct {
		encoding Encoding
		body     []byte
		offset   int
		text     string
	}{
		"zstd magic":        {Zstd, flip(Zstd, 0, 1), len(whole[Zstd]), "start of zstd"},
		"zstd checksum":     {Zstd, flip(Zstd, 0, len(whole[Zstd])-1), len(whole[Zstd]), "CRC"},
		"zstd truncated":    {Zstd, flip(Zstd, 1, 4)[:2*len(whole[Zstd])-1], len(whole[Zstd]), ""},
		"gzip magic":        {Gzip, flip(Gzip, 0, 1), len(whole[Gzip]), "bytes that aren't gzip follow"},
		"gzip method":       {Gzip, flip(Gzip, 0, 2), len(whole[Gzip]), "header"},
		"gzip, then zeros":  {Gzip, append(bytes.Clone(whole[Gzip]), make([]byte, 20)...), len(whole[Gzip]), "20 bytes that aren't gzip follow"},
		"gzip, then a line": {Gzip, append(bytes.Clone(whole[Gzip]), '\n'), len(whole[Gzip]), "1 bytes that aren't gzip follow"},
		"gzip, then half":   {Gzip, append(bytes.Clone(whole[Gzip]), 0x1f), len(whole[Gzip]) + 1, "truncated"},
		"gzip checksum":     {Gzip, flip(Gzip, 0, len(whole[Gzip])-8), 2*len(whole[Gzip]) - 8, "checksum"},
		"gzip truncated":    {Gzip, flip(Gzip, 2, 4), 2*len(whole[Gzip]) - 2, "truncated"},
		"lz4 magic":         {LZ4, flip(LZ4, 0, 1), len(whole[LZ4]), "start of lz4"},
		"lz4 header":        {LZ4, flip(LZ4, 0, 14), len(whole[LZ4]), "checksum"},
		"lz4 checksum":      {LZ4, flip(LZ4, 0, len(whole[LZ4])-1), 2*len(whole[LZ4]) - 4, "checksum"},
		"lz4 block":         {LZ4, flip(LZ4, 0, 18), len(whole[LZ4]) + 15, "block of"},
		"snappy identifier": {Snappy, flip(Snappy, 0, 5), len(whole[Snappy]), "identifier"},
		"snappy checksum":   {Snappy, flip(Snappy, 0, 10+5), len(whole[Snappy]) + 10, "checksum"},
		"not gzip":          {Gzip, []byte("just text, not compressed"), 0, "MILLRACE_DECOMPRESS"},
		"not zstd":          {Zstd, []byte("just text, not compressed"), 0, "MILLRACE_DECOMPRESS"},
		"not lz4":           {LZ4, []byte("just text, not compressed"), 0, "MILLRACE_DECOMPRESS"},
		"not snappy":        {Snappy, []byte("just text, not compressed"), 0, "MILLRACE_DECOMPRESS"},
		"lz4 legacy":        {LZ4, []byte("\x02\x21\x4c\x18\x05\x00\x00\x00"), 0, "legacy"},
		"lz4 dictionary":    {LZ4, []byte("\x04\x22\x4d\x18\x41\x40\x00\x00"), 0, "dictionary"},
		"zstd dictionary":   {Zstd, []byte("\x28\xb5\x2f\xfd\x21\x05\x00\x00\x00\x00\x00"), 0, "dictionary"},
		"zstd window":       {Zstd, []byte("\x28\xb5\x2f\xfd\x00\x88\x01\x00\x00"), 0, "RFC 9659"},
	} {
		_, err := new(Decompressor).Append(nil, c.encoding, c.body, 1<<20)
		var fault *InvalidError
		if !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if fault.Offset != int64(c.offset) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want byte %d and %q", name, err, c.offset, c.text)
		}
	}
}

func TestLimitIsExact(t *testing.T) {
	var d Decompressor
	for name, body := range bodies() {
		if len(body) == 0 {
			continue
		}
		for _, w := range append(writers, writer{"none", None, true, bytes.Clone}) {
			compressed := w.write(body)
			_, err := d.Append(nil, w.encoding, compressed, int64(len(body)-1))
			var large *TooLargeError
			if !errors.As(err, &large) || large.Limit != int64(len(body)-1) || !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s, %s with a limit one byte below its size: %v", w.name, name, err)
			}
			for _, limit := range []int64{int64(len(body)), math.MaxInt64} {
				if got, err := d.Append(nil, w.encoding, compressed, limit); err != nil || len(got) != len(body) {
					t.Errorf("%s, %s with the limit %d: %d bytes, %v", w.name, name, limit, len(got), err)
				}
			}
			for _, limit := range []int64{0, -1, math.MinInt64} {
				if _, err := d.Append(nil, w.encoding, compressed, limit); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s, %s with the limit %d: %v", w.name, name, limit, err)
				}
			}
		}
	}
}

// TestBombCostsAtMostTheLimit measures the bytes that are allocated for a body of 512 MiB of zeros. Without the limit,
// the body's size would be allocated.
func TestBombCostsAtMostTheLimit(t *testing.T) {
	const (
		size  = 512 << 20
		limit = 16 << 20
	)
	for _, w := range writers {
		if strings.HasPrefix(w.name, "compressor") || w.name == "zstd flushed" || w.name == "lz4 with size" || w.name == "zstd with size" {
			continue // these writers need the whole body at once
		}
		t.Run(w.name, func(t *testing.T) {
			const part = 32 << 20 // the first frame alone is larger than the limit
			bomb := bytes.Repeat(w.write(make([]byte, part)), size/part)
			var d Decompressor
			_, err := d.Append(nil, w.encoding, w.write([]byte("warm")), limit)
			must(err)
			dst := make([]byte, 0, 100)
			var got []byte
			used := allocated(func() { got, err = d.Append(dst, w.encoding, bomb, limit) })
			if !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%d bytes for %d: %v", len(bomb), size, err)
			}
			// The factor is 2 because a body without a declared size makes its slice grow several times.
			if used > 2*limit+1<<20 || cap(got) > limit+zstdBlock+slack {
				t.Errorf("%d bytes allocated, the capacity is %d, and the limit %d", used, cap(got), limit)
			}
		})
	}
}

// allocated returns the number of bytes that f allocates. It would include the allocations of parallel tests.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestHeadersThatLieAllocateLittle(t *testing.T) {
	const limit = 64 << 20
	lz4Body := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	lz4Body = append(lz4Body, lz4Version|lz4Independent|lz4ContentSize, 7<<4)
	lz4Body = binary.LittleEndian.AppendUint64(lz4Body, limit)
	lz4Body = append(lz4Body, byte(xxh32(lz4Body[4:])>>8))
	lz4Body = append(lz4Body, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	gzipBody := stream(func(w io.Writer) io.WriteCloser { return stdgzip.NewWriter(w) })([]byte("short"))
	binary.LittleEndian.PutUint32(gzipBody[len(gzipBody)-4:], limit)
	for name, c := range map[string]struct {
		encoding Encoding
		body     []byte
	}{
		"zstd":   {Zstd, []byte("\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x04\x01\x00\x00")},
		"lz4":    {LZ4, lz4Body},
		"gzip":   {Gzip, gzipBody},
		"snappy": {Snappy, []byte(s2Magic + "\x00\x0a\x00\x00\x00\x00\x00\x00\x80\x80\x80\x20\x00\x00")},
	} {
		var d Decompressor
		_, err := d.Append(nil, c.encoding, c.body, limit)
		var fault *InvalidError
		if !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		}
		var got []byte
		if used := allocated(func() { got, _ = d.Append(nil, c.encoding, c.body, limit) }); used > limit/8 {
			t.Errorf("%s: %d bytes allocated for a body of %d", name, used, len(c.body))
		}
		if cap(got) > limit/8 {
			t.Errorf("%s: capacity %d", name, cap(got))
		}
	}
}

func TestNothingIsAllocatedOnceWarm(t *testing.T) {
	if raceDetector {
		t.Skip("SKIPPED: with the race detector, a sync.Pool of the libraries drops some of its objects")
	}
	for _, w := range writers {
		var d Decompressor
		compressed := w.write(corpus.Text(8, 512<<10))
		dst, err := d.Append(nil, w.encoding, compressed, 1<<20)
		must(err)
		if n := testing.AllocsPerRun(20, func() { dst, _ = d.Append(dst[:0], w.encoding, compressed, 1<<20) }); n > 0 {
			t.Errorf("%s: %v allocations per body", w.name, n)
		}
	}
	body := corpus.Text(8, 512<<10)
	for _, e := range ofResults {
		var c Compressor
		dst := c.Append(nil, e, body)
		if n := testing.AllocsPerRun(20, func() { dst = c.Append(dst[:0], e, body) }); n > 0 {
			t.Errorf("compress %v: %v allocations per body", e, n)
		}
	}
}

// TestGzipWithLongTexts uses names and comments of more than 511 bytes, the limit of the library's reader.
func TestGzipWithLongTexts(t *testing.T) {
	var members []byte
	for _, name := range []int{0, 1, 511, 512, 600, 100_000} {
		for _, comment := range []int{0, 511, 512, 5000} {
			var b bytes.Buffer
			z := stdgzip.NewWriter(&b)
			z.Name, z.Comment, z.Extra = strings.Repeat("n", name), strings.Repeat("c", comment), make([]byte, comment%300)
			_, err := z.Write([]byte("a body"))
			must(err)
			must(z.Close())
			members = append(members, b.Bytes()...)
			if got, err := new(Decompressor).Append(nil, Gzip, b.Bytes(), 100); err != nil || string(got) != "a body" {
				t.Fatalf("a name of %d bytes and a comment of %d: %q, %v", name, comment, got, err)
			}
			for _, end := range []int{5, 11, gzipHeaderBytes + name/2, b.Len() - 1} {
				if got, err := new(Decompressor).Append(nil, Gzip, b.Bytes()[:end], 100); err == nil {
					t.Fatalf("a name of %d bytes and a comment of %d: %d of %d bytes give %q", name, comment, end, b.Len(), got)
				}
			}
		}
	}
	if got, err := new(Decompressor).Append(nil, Gzip, members, 1000); err != nil || string(got) != strings.Repeat("a body", 24) {
		t.Errorf("all in a row: %q, %v", got, err)
	}
	short := append([]byte("\x1f\x8b\x08\x0a\x00\x00\x00\x00\x00\xff"+strings.Repeat("n", 600)+"\x00"), 1, 2) // an incorrect header checksum
	if got, err := new(Decompressor).Append(nil, Gzip, append(short, "\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"...), 100); err == nil {
		t.Errorf("a header with a wrong checksum gives %q", got)
	}
}

// TestNothingRemainsOfTheBodyBefore decompresses two frames. The second frame refers to 16 bytes before its own start, where
// output of the first frame could remain.
func TestNothingRemainsOfTheBodyBefore(t *testing.T) {
	frame := func(block ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, lz4Magic)
		b = append(b, lz4Version, 4<<4)
		b = append(b, byte(xxh32(b[4:])>>8))
		b = append(b, byte(len(block)), 0, 0, 0)
		return append(append(b, block...), 0, 0, 0, 0)
	}
	secret := frame(append([]byte{0xF0, 1}, "secret of others"...)...)
	thief := frame(0x00+15-4, 16, 0, 0x10, 'x') // copies from 16 bytes back, before the start of the output
	var d Decompressor
	out, err := d.Append(nil, LZ4, secret, 100)
	if err != nil || string(out) != "secret of others" {
		t.Fatalf("%q, %v", out, err)
	}
	for name, body := range map[string][]byte{"next body": thief, "next frame": append(secret, thief...)} {
		var fault *InvalidError
		if got, err := d.Append(out, LZ4, body, 100); !errors.As(err, &fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestDeclaredSizes(t *testing.T) {
	body := corpus.Text(9, 300_000)
	for _, w := range writers {
		size, known := Declared(w.encoding, w.write(body))
		want := !strings.Contains(w.name, "zstd streamed") && !strings.Contains(w.name, "zstd flushed") &&
			(w.encoding != LZ4 || w.name == "lz4 with size" || w.name == "compressor lz4")
		if known != want || known && size != int64(len(body)) {
			t.Errorf("%s: %d, %v", w.name, size, known)
		}
	}
	if size, known := Declared(None, body); size != int64(len(body)) || !known {
		t.Errorf("none: %d, %v", size, known)
	}
	for e := None + 1; e <= Auto; e++ {
		if size, known := Declared(e, nil); known {
			t.Errorf("%v: an empty body declares %d", e, size)
		}
	}
}

func TestAutoIsNoEncodingOfABody(t *testing.T) {
	for _, e := range []Encoding{Auto, Auto + 1} {
		if _, err := new(Decompressor).Append(nil, e, []byte("body"), 100); err == nil {
			t.Errorf("%v: no error", e)
		}
	}
}

func TestCompressedBodiesAreReadByOthers(t *testing.T) {
	for name, body := range bodies() {
		for e, open := range map[Encoding]func(io.Reader) io.Reader{
			None: func(r io.Reader) io.Reader { return r },
			Zstd: func(r io.Reader) io.Reader {
				z, err := zstd.NewReader(r)
				must(err)
				return z
			},
			LZ4:    func(r io.Reader) io.Reader { return lz4.NewReader(r) },
			Snappy: func(r io.Reader) io.Reader { return s2.NewReader(r, s2.ReaderMaxBlockSize(64<<10)) },
		} {
			var c Compressor
			for range 2 {
				compressed := c.Append([]byte("before"), e, body)
				got, err := io.ReadAll(open(bytes.NewReader(compressed[len("before"):])))
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%v, %s: %d bytes, %v", e, name, len(got), err)
				}
				if name == "text" && e != None && len(compressed) > len(body)*4/5 {
					t.Errorf("%v: %d bytes of text are %d compressed", e, len(body), len(compressed))
				}
			}
		}
	}
}
