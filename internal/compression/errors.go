package compression

import (
	"errors"
	"fmt"
)

// ErrTooLarge is the error that every *TooLargeError wraps.
var ErrTooLarge = errors.New("too large")

// TooLargeError says that a body decompresses to more bytes than its reader allows.
type TooLargeError struct {
	Encoding Encoding
	Limit    int64
}

func (e *TooLargeError) Error() string {
	if e.Encoding == None {
		return fmt.Sprintf("too large: the body has more than %d bytes: send smaller messages, or raise MILLRACE_FRAME_BYTES", e.Limit)
	}
	return fmt.Sprintf("too large: the %v body decompresses to more than %d bytes: send smaller messages, or raise MILLRACE_FRAME_BYTES", e.Encoding, e.Limit)
}

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// InvalidError says that a body isn't valid in its encoding.
type InvalidError struct {
	Encoding Encoding
	// Offset is the byte of the compressed body at which the fault was noticed. If a checksum is wrong, that is the checksum. If the
	// compressed data of a zstd frame is wrong, that is the start of the frame, because the decoder doesn't tell more.
	Offset int64
	Err    error
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %v at byte %d: %v", e.Encoding, e.Offset, e.Err)
}

// Unwrap returns the fault.
func (e *InvalidError) Unwrap() error { return e.Err }

var (
	errTruncated = errors.New("truncated")
	errChecksum  = errors.New("the checksum differs from that of the decompressed bytes")
	errSize      = errors.New("the decompressed size differs from that in the header")
	errDictID    = errors.New("the frame needs a dictionary: compress without one")
)

// notThis is the error for a body that doesn't begin as the encoding does.
func notThis(e Encoding) error {
	return fmt.Errorf("this isn't the start of %v data: check MILLRACE_DECOMPRESS and the message's Content-Encoding", e)
}

func invalid(e Encoding, offset int, err error) error {
	return &InvalidError{Encoding: e, Offset: int64(offset), Err: err}
}
