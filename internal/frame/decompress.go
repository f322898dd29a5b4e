package frame

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"millrace/internal/compression"
)

// Codecs of a record batch, numbered as the enum CompressionType in Arrow's Message.fbs.
const (
	codecLZ4  = 0
	codecZstd = 1
)

var errLength = errors.New("its length differs from the declared one")

// decompress decompresses src, which must give exactly len(dst) bytes. It doesn't allocate more than the libraries need,
// whatever src declares. A panic of a library becomes an error.
func decompress(codec uint8, dst, src []byte) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
		}
	}()
	if len(dst) == 0 {
		return nil
	}
	if codec == codecZstd {
		return decompressZstd(dst, src)
	}
	return decompressLZ4(dst, src)
}

// zstdDecoder returns the decoder that all frames share. DecodeAll may be called by several goroutines, and decodes into
// its destination without a window.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

func decompressZstd(dst, src []byte) error {
	decoder, err := zstdDecoder()
	if err != nil {
		return err
	}
	out, err := decoder.DecodeAll(src, dst[:0:len(dst)])
	if err == nil && len(out) != len(dst) {
		err = errLength
	}
	return err
}

// decompressLZ4 keeps no state between bodies. The reader of the LZ4 library does: after a Reset it still has the last bytes of the frame before.
func decompressLZ4(dst, src []byte) error {
	out, err := new(compression.Decompressor).Append(dst[:0:len(dst)], compression.LZ4, src, int64(len(dst)))
	if err == nil && len(out) != len(dst) || errors.Is(err, compression.ErrTooLarge) {
		err = errLength
	}
	return err
}
