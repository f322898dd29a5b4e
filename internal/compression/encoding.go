// Package compression decompresses the bodies of messages and compresses the bodies of results.
//
// Each goroutine that reads or writes messages has its own Decompressor or Compressor, which it reuses for all messages. The package
// doesn't trust its input. A size in a header is only a hint. The package checks every size before it allocates memory, and a Decompressor
// stops at its caller's limit.
//
// Start reading with Decompressor.Append and Compressor.Append. Each encoding has its own file.
package compression

import (
	"fmt"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Encoding is the compression of a body.
type Encoding uint8

const (
	None   Encoding = iota
	Zstd            // one or more frames of RFC 8878
	Gzip            // one or more members of RFC 1952
	LZ4             // one or more LZ4 frames
	Snappy          // the framing format of Snappy or of S2
	Auto            // encoding from the message's Content-Encoding; valid as a setting, not as the encoding of a body
)

var names = [...]string{None: "none", Zstd: "zstd", Gzip: "gzip", LZ4: "lz4", Snappy: "snappy", Auto: "auto"}

// ofResults are the encodings that a Compressor writes.
var ofResults = []Encoding{None, Zstd, LZ4, Snappy}

// UnmarshalText parses the encoding of inputs: none, zstd, gzip, lz4, snappy or auto.
func (e *Encoding) UnmarshalText(name []byte) error {
	i := slices.Index(names[:], string(name))
	if i < 0 {
		return fmt.Errorf("unknown encoding %q: known are %s", name, strings.Join(names[:], ", "))
	}
	*e = Encoding(i)
	return nil
}

// ParseResult parses the encoding of results: none, zstd, lz4 or snappy.
func ParseResult(name string) (Encoding, error) {
	var known []string
	for _, e := range ofResults {
		if e.String() == name {
			return e, nil
		}
		known = append(known, e.String())
	}
	return None, fmt.Errorf("unknown encoding %q of results: known are %s", name, strings.Join(known, ", "))
}

// String returns the name that UnmarshalText parses.
func (e Encoding) String() string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("Encoding(%d)", uint8(e))
}

// ContentEncoding returns the value of the Content-Encoding header for a body in this encoding. It is empty for None, whose bodies
// have no such header.
func (e Encoding) ContentEncoding() string {
	if e == None {
		return ""
	}
	return e.String()
}

// contentEncodings maps each value of Content-Encoding that FromHeader accepts to its encoding.
var contentEncodings = map[string]Encoding{
	"":                None,
	"identity":        None,
	"zstd":            Zstd,
	"x-zstd":          Zstd,
	"gzip":            Gzip,
	"x-gzip":          Gzip,
	"lz4":             LZ4,
	"x-lz4":           LZ4,
	"snappy":          Snappy,
	"x-snappy":        Snappy,
	"x-snappy-framed": Snappy,
	"s2":              Snappy,
	"x-s2":            Snappy,
}

// FromHeader returns the encoding that a Content-Encoding header names. Case and surrounding spaces don't matter. It returns an error for a
// list of several encodings or an unknown encoding.
func FromHeader(contentEncoding string) (Encoding, error) {
	name := strings.ToLower(strings.TrimSpace(contentEncoding))
	if e, ok := contentEncodings[name]; ok {
		return e, nil
	}
	if strings.Contains(name, ",") {
		return None, fmt.Errorf("Content-Encoding %q has several encodings: compress the body once", contentEncoding)
	}
	return None, fmt.Errorf("unknown Content-Encoding %q: known are identity, zstd, gzip, lz4, snappy and s2", contentEncoding)
}

// Compressor compresses bodies. The zero value is ready for use. Only one goroutine may use it. It creates the encoder of an
// encoding for the first body in that encoding, and reuses it for all later bodies.
type Compressor struct {
	zstd *zstd.Encoder
	lz4  lz4.Compressor
}

// Append appends the compressed src to dst and returns the extended slice. src and the spare capacity of dst must not overlap.
// Equal bodies have equal compressed bytes. Append panics if e isn't an encoding that ParseResult accepts.
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
		// This option compresses an empty body to an empty frame. Without it, the result would have no bytes, and no
		// decoder accepts that.
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
