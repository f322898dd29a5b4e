package compression

import (
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressor compresses bodies. The zero value is ready for use. Only one goroutine may use it. It creates what an encoding needs
// when that encoding first occurs, and reuses it for all later bodies.
type Compressor struct {
	zstd *zstd.Encoder
	lz4  lz4.Compressor
}

// Append appends the compressed src to dst and returns the extended slice. src and the spare capacity of dst must not overlap. The
// same src gives the same bytes. It panics if e isn't one that ParseResult returns.
func (c *Compressor) Append(dst []byte, e Encoding, src []byte) []byte {
	switch e {
	case None:
		return append(dst, src...)
	case Zstd:
		return c.openZstd().EncodeAll(src, dst)
	case LZ4:
		return c.appendLZ4Frame(dst, src)
	case Snappy:
		return appendSnappyStream(dst, src)
	}
	panic("compression: results can't be compressed with " + e.String())
}

func (c *Compressor) openZstd() *zstd.Encoder {
	if c.zstd == nil {
		// With zero frames, an empty body becomes a frame and not an empty one, which no decoder accepts.
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
		if err != nil {
			panic("compression: " + err.Error()) // the options are constant
		}
		c.zstd = encoder
	}
	return c.zstd
}

// reserve returns dst with a spare capacity of at least n bytes.
func reserve(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(make([]byte, 0, max(2*cap(dst), len(dst)+n)), dst...)
}
