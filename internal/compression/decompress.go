package compression

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// Decompressor decompresses bodies. The zero value is ready for use. Only one goroutine may use it. It creates the decoder of
// an encoding for the first body in that encoding, and reuses it for all later bodies.
type Decompressor struct {
	zstd      *zstd.Decoder
	zstdLimit uint64 // decoder's limit of decompressed bytes

	flate   io.ReadCloser // implements flate.Resetter
	source  bytes.Reader  // input of flate
	settled [82]byte      // decompressed content of flateSettled
	beyond  [1]byte       // next byte if the output has no capacity left
}

// Append appends the decompressed src to dst and returns the extended slice. src and the spare capacity of dst must not overlap.
//
// It appends at most limit bytes. If dst has too little capacity, Append at least doubles the capacity, up to
// len(dst)+limit+32 bytes. For a zstd frame that doesn't declare its size, the bound is len(dst)+max(limit, window)+128
// KiB+32 bytes. To avoid allocations, pass the slice of the previous body, cut to length 0.
//
// If the body is larger than limit, the error is a *TooLargeError. If the body is corrupt or truncated, the error is an
// *InvalidError. If Append fails, it returns dst with its old length and content, perhaps with more capacity.
//
// An empty src is an empty body in None and Snappy, and a truncated body in the other encodings. A Snappy body has no end mark, so
// Append can't detect that whole chunks are missing.
//
// Append checks all checksums. It decompresses consecutive frames or members as one body.
func (d *Decompressor) Append(dst []byte, e Encoding, src []byte, limit int64) ([]byte, error) {
	out := output{buf: dst, encoding: e, limit: limit, max: len(dst) + int(min(max(limit, 0), math.MaxInt-int64(len(dst))-maxSlack))}
	if len(src) == 0 && e != None && e != Snappy {
		return dst, invalid(e, 0, errTruncated)
	}
	var err error
	switch e {
	case None:
		err = out.append(src)
	case Zstd:
		err = d.appendZstd(&out, src)
	case Gzip:
		err = d.appendGzip(&out, src)
	case LZ4:
		err = appendLZ4(&out, src)
	case Snappy:
		err = appendSnappy(&out, src)
	default:
		err = fmt.Errorf("compression: %v is not an encoding of a body", e)
	}
	if err != nil {
		return out.buf[:len(dst)], err
	}
	return out.buf, nil
}

// Declared returns the decompressed size that the headers of src declare. known reports whether they declare a size. The size of a
// gzip body is the size of its last member, modulo 4 GiB. Use it only to allocate memory for a first body, bounded by the limit of
// Append, because src may declare a wrong size.
func Declared(e Encoding, src []byte) (size int64, known bool) {
	switch e {
	case None:
		return int64(len(src)), true
	case Zstd:
		return declaredZstd(src)
	case Gzip:
		return declaredGzip(src)
	case LZ4:
		return declaredLZ4(src)
	case Snappy:
		return declaredSnappy(src)
	}
	return 0, false
}

const (
	// slack is the spare capacity after the largest permitted body. With it, the zstd decoder can copy blocks of 16 bytes.
	slack = 32

	maxSlack = zstdWindow + zstdBlock + slack
)

// output is the slice that Append extends.
type output struct {
	buf      []byte
	max      int // the largest permitted len(buf)
	encoding Encoding
	limit    int64 // limit from the caller, for errors
}

// room returns the number of bytes that may still be appended.
func (o *output) room() int { return o.max - len(o.buf) }

func (o *output) tooLarge() error {
	return &TooLargeError{Encoding: o.encoding, Limit: max(o.limit, 0)}
}

// reserve makes the spare capacity at least n bytes. It doubles a capacity that is too small, within the limit. Callers
// compare n with room first.
func (o *output) reserve(n int) {
	if cap(o.buf)-len(o.buf) >= n {
		return
	}
	need := len(o.buf) + n
	grown := make([]byte, len(o.buf), max(need, min(2*cap(o.buf), o.max+slack)))
	copy(grown, o.buf)
	o.buf = grown
}

// spare returns the n bytes after the output. The caller must have reserved them.
func (o *output) spare(n int) []byte { return o.buf[len(o.buf) : len(o.buf)+n : len(o.buf)+n] }

// extend appends the first n bytes of spare, which the caller has filled.
func (o *output) extend(n int) { o.buf = o.buf[:len(o.buf)+n] }

// append appends b, or returns a *TooLargeError.
func (o *output) append(b []byte) error {
	if len(b) > o.room() {
		return o.tooLarge()
	}
	o.reserve(len(b))
	o.buf = append(o.buf, b...)
	return nil
}

// ErrTooLarge is the error that every *TooLargeError wraps.
var ErrTooLarge = errors.New("too large")

// TooLargeError reports that a body decompresses to more than Limit bytes.
type TooLargeError struct {
	Encoding Encoding
	Limit    int64
}

func (t *TooLargeError) Error() string {
	if t.Encoding == None {
		return fmt.Sprintf("too large: the body has more than %d bytes: send smaller messages, or raise MILLRACE_FRAME_BYTES", t.Limit)
	}
	return fmt.Sprintf("too large: the %v body decompresses to more than %d bytes: send smaller messages, or raise MILLRACE_FRAME_BYTES", t.Encoding, t.Limit)
}

// Unwrap returns ErrTooLarge.
func (t *TooLargeError) Unwrap() error { return ErrTooLarge }

// InvalidError reports that a body isn't valid in its encoding.
type InvalidError struct {
	Encoding Encoding
	// Offset is a position in the compressed body: the position of the fault, or of the block, chunk or frame that contains the fault.
	Offset int64
	Err    error
}

func (i *InvalidError) Error() string {
	return fmt.Sprintf("invalid %v at byte %d: %v", i.Encoding, i.Offset, i.Err)
}

// Unwrap returns Err.
func (i *InvalidError) Unwrap() error { return i.Err }

var (
	errTruncated = errors.New("truncated")
	errChecksum  = errors.New("the checksum differs from the checksum of the decompressed bytes")
	errSize      = errors.New("the decompressed size differs from the size in the header")
	errDictID    = errors.New("the frame needs a dictionary: compress without one")
)

// notThis returns the error for a body that doesn't begin with its encoding's magic number.
func notThis(e Encoding) error {
	return fmt.Errorf("this isn't the start of %v data: check MILLRACE_DECOMPRESS and the message's Content-Encoding", e)
}

func invalid(e Encoding, offset int, err error) error {
	return &InvalidError{Encoding: e, Offset: int64(offset), Err: err}
}
