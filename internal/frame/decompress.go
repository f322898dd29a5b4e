package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
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

// lz4Reader reads an LZ4 frame from memory.
type lz4Reader struct {
	src  bytes.Reader
	rest [1]byte
	*lz4.Reader
}

var lz4Readers = sync.Pool{New: func() any { return &lz4Reader{Reader: lz4.NewReader(nil)} }}

func decompressLZ4(dst, src []byte) error {
	r := lz4Readers.Get().(*lz4Reader)
	r.src.Reset(src)
	r.Reset(&r.src)
	_, err := io.ReadFull(r, dst)
	if err == nil {
		if n, end := r.Read(r.rest[:]); n != 0 || !errors.Is(end, io.EOF) {
			err = errLength
		}
	}
	r.src.Reset(nil)
	r.Reset(nil)
	lz4Readers.Put(r)
	return err
}
