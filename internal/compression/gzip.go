package compression

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// RFC 1952 specifies the gzip format. This file reads the headers and checksums of members itself. It uses the library only for the
// compressed data. The library's reader of gzip limits names and comments to 511 bytes. It also treats a truncated header of a later
// member as the end of the body.
const (
	gzipHeaderBytes  = 10 // length of a header without optional fields
	gzipTrailerBytes = 8  // uint32 checksum, uint32 size

	// Flags of optional fields in a header.
	gzipHeaderSum = 1 << 1
	gzipExtra     = 1 << 2
	gzipName      = 1 << 3
	gzipComment   = 1 << 4
	gzipReserved  = 7 << 5

	gzipFirst = 4 << 10 // first allocation for a member whose size isn't plausible
	gzipRatio = 1032    // maximum compression ratio: deflate encodes at most 258 bytes in 2 bits
)

// gzipMagic begins each member.
var gzipMagic = []byte{0x1f, 0x8b}

var errGzipHeader = errors.New("corrupt header")

// flateSettled is compressed data that sets the reader's Huffman tables to the same state before each body. The block of
// flateSettled defines codes for lengths and distances. Otherwise, a corrupt block that refers to a missing table would use the
// table of the previous body. The standard library's reader clears its tables, but allocates new tables for each block.
var flateSettled = []byte("\x75\x8b\xb1\x09\x00\x31\x00\x84\x66\xf5\x74\xff\x19\x9e\x40\xba\xf0\x16" +
	"\x56\xda\x0e\x4c\x0a\x56\x86\x53\xe4\x7a\xa9\x6f\xf4\xfb\x7c")

// declaredGzip returns the size at the end of the last member, and whether the size is plausible.
func declaredGzip(src []byte) (int64, bool) {
	if len(src) < gzipHeaderBytes+gzipTrailerBytes || !bytes.HasPrefix(src, gzipMagic) {
		return 0, false
	}
	size := int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	return size, size/gzipRatio <= int64(len(src))
}

// appendGzip decompresses all members of src.
func (d *Decompressor) appendGzip(out *output, src []byte) error {
	if err := d.settleFlate(); err != nil {
		return err
	}
	defer d.source.Reset(nil)
	if size, ok := declaredGzip(src); ok {
		out.reserve(int(min(size, int64(out.room()))) + 1)
	} else {
		out.reserve(min(gzipFirst, out.room()))
	}
	for at := 0; at < len(src); at = len(src) - d.source.Len() {
		member := src[at:]
		header, err := gzipHeader(member)
		switch {
		case at > 0 && !bytes.HasPrefix(member, gzipMagic[:min(len(member), len(gzipMagic))]):
			return invalid(Gzip, at, fmt.Errorf("%d bytes that aren't gzip follow the compressed body: send it without them", len(member)))
		case errors.Is(err, errTruncated):
			return invalid(Gzip, len(src), err)
		case err != nil:
			return invalid(Gzip, at, err)
		}
		d.source.Reset(member[header:])
		start := len(out.buf)
		if err := d.readFlate(out, src); err != nil {
			return err
		}
		if err := d.readGzipTrailer(out.buf[start:], src); err != nil {
			return err
		}
	}
	return nil
}

// gzipHeader returns the length of a member's header.
func gzipHeader(member []byte) (int, error) {
	const deflate = 8
	switch {
	case !bytes.HasPrefix(member, gzipMagic[:min(len(member), len(gzipMagic))]):
		return 0, notThis(Gzip)
	case len(member) < gzipHeaderBytes:
		return 0, errTruncated
	case member[2] != deflate, member[3]&gzipReserved != 0:
		return 0, errGzipHeader
	}
	flags, at := member[3], gzipHeaderBytes
	if flags&gzipExtra != 0 {
		if len(member) < at+2 {
			return 0, errTruncated
		}
		at += 2 + int(binary.LittleEndian.Uint16(member[at:]))
	}
	for _, text := range []byte{gzipName, gzipComment} {
		if flags&text == 0 {
			continue
		}
		n := bytes.IndexByte(member[min(at, len(member)):], 0)
		if n < 0 {
			return 0, errTruncated
		}
		at += n + 1
	}
	if sum := at; flags&gzipHeaderSum != 0 {
		if at += 2; len(member) >= at && binary.LittleEndian.Uint16(member[sum:]) != uint16(crc32.ChecksumIEEE(member[:sum])) {
			return 0, errGzipHeader
		}
	}
	if len(member) < at {
		return 0, errTruncated
	}
	return at, nil
}

// settleFlate creates the reader of compressed data if it is missing, and makes it read flateSettled.
func (d *Decompressor) settleFlate() error {
	d.source.Reset(flateSettled)
	if d.flate == nil {
		d.flate = flate.NewReader(&d.source)
	}
	if err := d.flate.(flate.Resetter).Reset(&d.source, nil); err != nil {
		return err
	}
	_, err := io.ReadFull(d.flate, d.settled[:])
	return err
}

// readFlate decompresses the data in d.source and appends it to out.
func (d *Decompressor) readFlate(out *output, src []byte) error {
	if err := d.flate.(flate.Resetter).Reset(&d.source, nil); err != nil {
		return err
	}
	for {
		n := min(cap(out.buf)-len(out.buf), out.room())
		into := d.beyond[:]
		if n > 0 {
			into = out.spare(n)
		}
		got, err := d.flate.Read(into)
		switch {
		case n > 0:
			out.extend(got)
		case got > 0 && out.room() == 0:
			return out.tooLarge()
		case got > 0:
			out.reserve(min(max(gzipFirst, len(out.buf)), out.room()))
			out.buf = append(out.buf, d.beyond[0])
		}
		switch at := len(src) - d.source.Len(); {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return invalid(Gzip, at, errTruncated)
		case err != nil:
			return invalid(Gzip, at, errors.New("corrupt data")) // the reader's own error depends on earlier data
		}
	}
}

// readGzipTrailer reads the checksum and the size after the compressed data, and compares them with the content.
func (d *Decompressor) readGzipTrailer(content, src []byte) error {
	at := len(src) - d.source.Len()
	trailer := src[at:]
	if len(trailer) < gzipTrailerBytes {
		return invalid(Gzip, len(src), errTruncated)
	}
	d.source.Reset(trailer[gzipTrailerBytes:])
	if binary.LittleEndian.Uint32(trailer) != crc32.ChecksumIEEE(content) || binary.LittleEndian.Uint32(trailer[4:]) != uint32(len(content)) {
		return invalid(Gzip, at, errChecksum)
	}
	return nil
}
