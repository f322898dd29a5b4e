package compression

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/gzip"
)

const (
	gzipFirst = 4 << 10 // first allocation for a member whose size isn't plausible
	gzipRatio = 1032    // deflate codes at most 258 bytes with 2 bits
)

// gzipSettled is a member that makes the reader's Huffman tables the same before each body. It has a block with codes for lengths and
// distances. Without it, a corrupt block that refers to a table without giving one would use the table of the body before. The
// standard library's reader clears its tables, but allocates new ones for each block.
const gzipSettled = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x75\x8b\xb1\x09\x00\x31\x00\x84\x66\xf5\x74\xff\x19\x9e\x40\xba\xf0\x16" +
	"\x56\xda\x0e\x4c\x0a\x56\x86\x53\xe4\x7a\xa9\x6f\xf4\xfb\x7c\x9f\x03\x92\xad\x52\x00\x00\x00"

var settledMember = []byte(gzipSettled)

// declaredGzip returns the size at the end of the last member.
func declaredGzip(src []byte) (int64, bool) {
	if len(src) < 18 || src[0] != 0x1f || src[1] != 0x8b {
		return 0, false
	}
	size := int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	if size/gzipRatio > int64(len(src)) {
		return 0, false
	}
	return size, true
}

// appendGzip reads one member after the other. The reader could do so by itself, but it takes a later member that is truncated in
// its header for the end of the body.
func (d *Decompressor) appendGzip(out *output, src []byte) error {
	if err := d.settleGzip(); err != nil {
		return err
	}
	d.source.Reset(src)
	defer d.source.Reset(nil)
	if size, ok := declaredGzip(src); ok {
		out.reserve(int(min(size, int64(out.room()))) + 1)
	} else {
		out.reserve(min(gzipFirst, out.room()))
	}
	for start := 0; start < len(src); start = len(src) - d.source.Len() {
		if rest := src[start:]; start > 0 && !bytes.HasPrefix(rest, gzipMagic[:min(len(rest), len(gzipMagic))]) {
			return invalid(Gzip, start, fmt.Errorf("%d bytes that aren't gzip follow the compressed body: send it without them", len(rest)))
		}
		if short, ok := withoutGzipTexts(src[start:]); ok {
			d.source.Reset(short)
		}
		if err := d.openGzip(); err != nil {
			if errors.Is(err, gzip.ErrHeader) && start == 0 {
				return invalid(Gzip, 0, notThis(Gzip))
			}
			return d.invalidGzip(src, err)
		}
		if err := d.readGzip(out, src); err != nil {
			return err
		}
	}
	return nil
}

// gzipMagic begins each member.
var gzipMagic = []byte{0x1f, 0x8b}

const (
	gzipHeader = 10 // bytes that each header has

	// The flags of the fields that may follow.
	gzipHeaderSum = 1 << 1
	gzipExtra     = 1 << 2
	gzipName      = 1 << 3
	gzipComment   = 1 << 4

	// gzipText is the longest name or comment that the reader takes, with its final 0.
	gzipText = 512
)

// withoutGzipTexts returns a member without the optional fields of its header, if its name or its comment is longer than the reader takes. It
// copies the member. The reader reports a header that is damaged.
func withoutGzipTexts(member []byte) (short []byte, long bool) {
	if len(member) < gzipHeader || member[3]&(gzipName|gzipComment) == 0 {
		return nil, false
	}
	flags, at := member[3], gzipHeader
	if flags&gzipExtra != 0 {
		if len(member) < at+2 {
			return nil, false
		}
		at += 2 + int(binary.LittleEndian.Uint16(member[at:]))
	}
	for _, text := range []byte{gzipName, gzipComment} {
		if flags&text == 0 {
			continue
		}
		n := bytes.IndexByte(member[min(at, len(member)):], 0)
		if n < 0 {
			return nil, false
		}
		at, long = at+n+1, long || n >= gzipText
	}
	if sum := at; flags&gzipHeaderSum != 0 {
		if at += 2; len(member) < at || binary.LittleEndian.Uint16(member[sum:]) != uint16(crc32.ChecksumIEEE(member[:sum])) {
			return nil, false
		}
	}
	if !long {
		return nil, false
	}
	short = append(append(short, member[:gzipHeader]...), member[at:]...)
	short[3] = 0
	return short, true
}

// settleGzip reads gzipSettled.
func (d *Decompressor) settleGzip() error {
	d.source.Reset(settledMember)
	if err := d.openGzip(); err != nil {
		return err
	}
	for {
		if _, err := d.gzip.Read(d.settled[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// openGzip reads the header of a member.
func (d *Decompressor) openGzip() (err error) {
	if d.gzip == nil {
		d.gzip = new(gzip.Reader)
	}
	if err = d.gzip.Reset(&d.source); err == nil {
		d.gzip.Multistream(false)
	}
	return err
}

// readGzip reads the data and the checksum of a member.
func (d *Decompressor) readGzip(out *output, src []byte) error {
	for {
		n := min(cap(out.buf)-len(out.buf), out.room())
		into := d.beyond[:]
		if n > 0 {
			into = out.spare(n)
		}
		got, err := d.gzip.Read(into)
		switch {
		case n > 0:
			out.extend(got)
		case got > 0 && out.room() == 0:
			return out.tooLarge()
		case got > 0:
			out.reserve(min(max(gzipFirst, len(out.buf)), out.room()))
			out.buf = append(out.buf, d.beyond[0])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.invalidGzip(src, err)
		}
	}
}

// invalidGzip names the place that the reader has reached.
func (d *Decompressor) invalidGzip(src []byte, err error) error {
	at := len(src) - d.source.Len()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return invalid(Gzip, at, errTruncated)
	case errors.Is(err, gzip.ErrChecksum):
		return invalid(Gzip, at-8, errChecksum) // the checksum and the size, which were just read
	case errors.Is(err, gzip.ErrHeader):
		return invalid(Gzip, at, errors.New("corrupt header"))
	}
	// The reader's own words for the same data depend on the data before.
	return invalid(Gzip, at, errors.New("corrupt data"))
}
