package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/klauspost/compress/zstd"

	"millrace/internal/compression"
	"millrace/internal/invariants"
)

// arrowMemory is the memory that a frame needs for Arrow streams.
type arrowMemory struct {
	message  arrowMessage  // message that is being read
	buffers  []arrowBuffer // buffers of the record batch that is being read
	slab     []byte        // decompressed buffers
	inflated int           // bytes of all decompressed buffers of the stream

	dictionary *Frame // the values of a dictionary-encoded column; nil until the first such column
	keep       *Frame // the values of a kept column; nil until the first one

	body []byte
	rows *arrowRows // nil until the first dead letter
}

// arrowBuffer is a buffer of a column: base[pos:pos+length], where base is the body or the slab.
type arrowBuffer struct {
	pos, length int
	at          int  // start in the body, before decompression
	inflated    bool // whether base is the slab
}

// fault converts the offset of a fault in the buffer to a position in the body. For a compressed buffer, it returns the start of
// the buffer.
func (a *arrowBuffer) fault(offset int) int {
	if a.inflated {
		return a.at
	}
	return a.at + offset
}

// keptSlab is the largest slab that a frame keeps for the next message.
const keptSlab = 4 << 20

// reset removes the buffers, and releases memory that is too large to keep.
func (a *arrowMemory) reset() {
	invariants.Poison(a.slab)
	a.message, a.body, a.rows = arrowMessage{}, nil, nil
	a.buffers, a.slab, a.inflated = a.buffers[:0], a.slab[:0], 0
	if cap(a.slab) > keptSlab {
		a.slab = nil
	}
	a.dictionary, a.keep = a.dictionary.recycled(), a.keep.recycled()
}

// recycled resets the frame and returns it. It returns nil if the frame is nil or too large to keep.
func (f *Frame) recycled() *Frame {
	if f == nil || cap(f.starts) > DefaultMaxRecords {
		return nil
	}
	f.Reset()
	return f
}

// size returns the bytes of memory that reset keeps.
func (a *arrowMemory) size() int64 {
	size := int64(cap(a.slab) + cap(a.buffers)*int(unsafe.Sizeof(arrowBuffer{})))
	for _, f := range []*Frame{a.dictionary, a.keep} {
		if f != nil {
			size += f.Size()
		}
	}
	return size
}

// loadArrowBuffers sets f.arrow.buffers to count buffers of a record batch, from index first on. It returns the memory
// that contains the buffers. The first buffer marks the nulls, and stays empty if nulls is false.
func (f *Frame) loadArrowBuffers(m *arrowMessage, body []byte, first, count int, nulls bool) ([]byte, error) {
	a := &f.arrow
	a.buffers = a.buffers[:0]
	for i := range count {
		if i == 0 && !nulls {
			a.buffers = append(a.buffers, arrowBuffer{})
			continue
		}
		b, err := m.buffer(first + i)
		if err != nil {
			return nil, err
		}
		a.buffers = append(a.buffers, b)
	}
	codec, compressed, err := m.codec()
	if err != nil || !compressed {
		return body, err
	}
	return f.inflateArrowBuffers(codec, body)
}

// inflateArrowBuffers decompresses f.arrow.buffers into the slab. It first checks their declared lengths against the limit of the frame.
func (f *Frame) inflateArrowBuffers(codec uint8, body []byte) ([]byte, error) {
	a, total := &f.arrow, 0
	for i := range a.buffers {
		b := &a.buffers[i]
		size, err := b.inflatedSize(body)
		if err != nil {
			return nil, err
		}
		if limit := f.limits.bytes; size > int64(limit-a.inflated-total) {
			return nil, tooLarge(b.at, "the Arrow stream has more than %d bytes after decompression: send smaller frames, or raise MILLRACE_FRAME_BYTES", limit)
		}
		total += int(size)
	}
	a.inflated += total
	if cap(a.slab)-len(a.slab) < total {
		a.slab = make([]byte, 0, max(total, min(2*cap(a.slab), f.limits.bytes))) // segments still refer to the old slab
	}
	for i := range a.buffers {
		if err := a.inflate(&a.buffers[i], codec, body); err != nil {
			return nil, err
		}
	}
	return a.slab[:cap(a.slab)], nil
}

// Each buffer of a compressed record batch begins with its decompressed length, which has inflatedPrefix bytes. If this
// length equals stored, the buffer isn't compressed.
const (
	inflatedPrefix = 8
	stored         = -1
)

// inflatedSize returns the declared length of a buffer after decompression.
func (a *arrowBuffer) inflatedSize(body []byte) (int64, error) {
	if a.length == 0 {
		return 0, nil
	}
	size := int64(stored - 1)
	if a.length >= inflatedPrefix {
		size = int64(binary.LittleEndian.Uint64(body[a.pos:]))
	}
	switch {
	case size == stored:
		return int64(a.length - inflatedPrefix), nil
	case size < 0:
		return 0, invalid(a.at, "a compressed Arrow buffer doesn't have a valid length: %s", adviceOnStream)
	}
	return size, nil
}

// inflate decompresses a buffer, appends it to the slab, and makes b refer to the slab. The slab must have enough capacity.
func (a *arrowMemory) inflate(b *arrowBuffer, codec uint8, body []byte) error {
	if b.length == 0 {
		b.pos, b.inflated = len(a.slab), true
		return nil
	}
	size := int64(binary.LittleEndian.Uint64(body[b.pos:]))
	src := body[b.pos+inflatedPrefix : b.pos+b.length]
	pos := len(a.slab)
	if size == stored {
		a.slab = append(a.slab, src...)
	} else {
		a.slab = a.slab[:pos+int(size)]
		if err := decompress(codec, a.slab[pos:], src); err != nil {
			return invalid(b.at, "an Arrow buffer can't be decompressed (%v): %s", err, adviceOnStream)
		}
	}
	b.pos, b.length, b.inflated = pos, len(a.slab)-pos, true
	return nil
}

// Codecs of a record batch, numbered as the enum CompressionType in Arrow's Message.fbs.
const (
	codecLZ4  = 0
	codecZstd = 1
)

var errLength = errors.New("its length differs from the declared length")

// decompress decompresses src into dst. It returns an error unless the result has exactly len(dst) bytes. Its
// allocations don't depend on the sizes that src declares. It turns a panic of a library into an error.
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

// zstdDecoder returns the decoder that all frames share. DecodeAll is safe for concurrent use, and decodes into its
// destination without a window.
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

// decompressLZ4 decompresses src into dst. It doesn't use the LZ4 library's reader, which keeps the last bytes of a frame even after a
// Reset.
func decompressLZ4(dst, src []byte) error {
	out, err := new(compression.Decompressor).Append(dst[:0:len(dst)], compression.LZ4, src, int64(len(dst)))
	if err == nil && len(out) != len(dst) || errors.Is(err, compression.ErrTooLarge) {
		err = errLength
	}
	return err
}
