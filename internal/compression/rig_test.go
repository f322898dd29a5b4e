package compression

import (
	"bytes"
	stdgzip "compress/gzip"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"millrace/internal/corpus"
)

type writer struct {
	name     string
	encoding Encoding
	ends     bool // a body has an end mark, so every shorter body is truncated
	write    func(body []byte) []byte
}

// writers are the encoders of the formats' libraries, in the variants that other programs use.
var writers = []writer{
	{"zstd with size", Zstd, true, func(body []byte) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true))
		must(err)
		return w.EncodeAll(body, nil)
	}},
	{"zstd streamed", Zstd, true, stream(func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w, zstd.WithZeroFrames(true))
		must(err)
		return z
	})},
	{"zstd streamed with a small window", Zstd, true, stream(func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w, zstd.WithZeroFrames(true), zstd.WithWindowSize(zstd.MinWindowSize), zstd.WithEncoderConcurrency(1))
		must(err)
		return z
	})},
	{"zstd flushed", Zstd, true, func(body []byte) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithZeroFrames(true))
		must(err)
		for len(body) > 0 {
			n, err := w.Write(body[:min(len(body), 1000)])
			must(err)
			must(w.Flush())
			body = body[n:]
		}
		must(w.Close())
		return b.Bytes()
	}},
	{"gzip", Gzip, true, stream(func(w io.Writer) io.WriteCloser { return stdgzip.NewWriter(w) })},
	{"zstd with dictionary 0", Zstd, true, func(body []byte) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithZeroFrames(true), zstd.WithSingleSegment(false))
		must(err)
		frame := w.EncodeAll(body, nil)
		frame[4] |= 1 // flags a one-byte dictionary ID, which follows the window byte
		at := 6
		if frame[4]&(1<<5) != 0 {
			at = 5
		}
		return append(append(bytes.Clone(frame[:at]), 0), frame[at:]...)
	}},
	{"gzip with name", Gzip, true, stream(func(w io.Writer) io.WriteCloser {
		z := stdgzip.NewWriter(w)
		z.Name, z.Comment, z.Extra = "records", "of today", []byte("extra")
		return z
	})},
	{"lz4", LZ4, true, stream(func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) })},
	{"lz4 small blocks and checksums", LZ4, true, lz4Writer(lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true))},
	{"lz4 without checksum", LZ4, true, lz4Writer(lz4.ChecksumOption(false))},
	{"lz4 with size", LZ4, true, func(body []byte) []byte {
		return lz4Writer(lz4.SizeOption(uint64(len(body))))(body)
	}},
	{"snappy", Snappy, false, stream(func(w io.Writer) io.WriteCloser { return s2.NewWriter(w, s2.WriterSnappyCompat()) })},
	{"s2", Snappy, false, stream(func(w io.Writer) io.WriteCloser { return s2.NewWriter(w) })},
	{"s2 better with padding", Snappy, false, stream(func(w io.Writer) io.WriteCloser {
		return s2.NewWriter(w, s2.WriterBetterCompression(), s2.WriterPadding(512), s2.WriterAddIndex())
	})},
	{"compressor zstd", Zstd, true, compressor(Zstd)},
	{"compressor lz4", LZ4, true, compressor(LZ4)},
	{"compressor snappy", Snappy, false, compressor(Snappy)},
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func stream(open func(io.Writer) io.WriteCloser) func([]byte) []byte {
	return func(body []byte) []byte {
		var b bytes.Buffer
		w := open(&b)
		_, err := w.Write(body)
		must(err)
		must(w.Close())
		return b.Bytes()
	}
}

func lz4Writer(options ...lz4.Option) func([]byte) []byte {
	return stream(func(w io.Writer) io.WriteCloser {
		z := lz4.NewWriter(w)
		must(z.Apply(options...))
		return z
	})
}

func compressor(e Encoding) func([]byte) []byte {
	return func(body []byte) []byte { return new(Compressor).Append(nil, e, body) }
}

// bodies returns small and large bodies. Some of them compress well, and others don't.
func bodies() map[string][]byte {
	return map[string][]byte{
		"empty":     {},
		"a byte":    []byte("x"),
		"text":      corpus.Text(1, 300_000),
		"random":    corpus.Bytes(2, 300_000),
		"zeros":     make([]byte, 5<<20),
		"one block": corpus.Text(3, 64<<10),
	}
}
