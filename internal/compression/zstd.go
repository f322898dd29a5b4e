package compression

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// The zstd format is RFC 8878. The decoder does the work, but it neither says where a fault is, nor how much memory it will need. So
// this file walks over the headers of frames and blocks first, which costs a few bytes for every 128 KiB.
const (
	zstdMagic       = 0xFD2FB528
	zstdBlock       = 128 << 10 // most bytes of a block
	zstdWindow      = 8 << 20   // most bytes of a window: RFC 9659, the limit for a Content-Encoding
	zstdSmallWindow = 1 << 10

	zstdRaw        = 0
	zstdRLE        = 1
	zstdCompressed = 2

	zstdChecksum      = 1 << 2
	zstdReserved      = 1 << 3
	zstdSingleSegment = 1 << 5
)

// zstdFrame is what the headers of a frame say.
type zstdFrame struct {
	bytes       int // length of the frame
	skipped     bool
	hasSize     bool
	size        uint64 // decompressed size, with hasSize
	window      uint64
	least, most int64 // decompressed size according to the headers of the blocks
}

// walkZstd reads the headers of the frame with which src begins. If it fails, at is the place of the fault.
func walkZstd(src []byte) (f zstdFrame, at int, err error) {
	if len(src) < 5 {
		return f, 0, errTruncated
	}
	switch magic := binary.LittleEndian.Uint32(src); {
	case magic&^0xf == skippable:
		rest, err := cutSkippable(src)
		return zstdFrame{bytes: len(src) - len(rest), skipped: true}, 0, err
	case magic != zstdMagic:
		return f, 0, notThis(Zstd)
	}
	if at, err = f.walkHeader(src); err != nil {
		return f, 0, err
	}
	if at, err = f.walkBlocks(src, at); err != nil {
		return f, at, err
	}
	if src[4]&zstdChecksum != 0 {
		at += 4
	}
	if len(src) < at {
		return f, len(src), errTruncated
	}
	if f.hasSize && (f.size > uint64(f.most) || f.size < uint64(f.least)) {
		return f, 0, errSize
	}
	f.bytes = at
	return f, at, nil
}

// walkHeader reads the header of the frame and returns its length.
func (f *zstdFrame) walkHeader(src []byte) (int, error) {
	flags := src[4]
	single := flags&zstdSingleSegment != 0
	sizeBytes := [...]int{0, 2, 4, 8}[flags>>6]
	if single && sizeBytes == 0 {
		sizeBytes = 1
	}
	at := 5
	if !single {
		at++
	}
	dictionary := at
	at += [...]int{0, 1, 2, 4}[flags&3]
	end := at + sizeBytes
	switch {
	case len(src) < end:
		return 0, errTruncated
	case flags&zstdReserved != 0:
		return 0, errors.New("frame with unknown flags")
	case !isZero(src[dictionary:at]): // 0 is no dictionary
		return 0, errDictID
	}
	f.hasSize = sizeBytes > 0
	for i := range sizeBytes {
		f.size |= uint64(src[at+i]) << (8 * i)
	}
	if sizeBytes == 2 {
		f.size += 256
	}
	f.window = max(f.size, zstdSmallWindow)
	if !single {
		base := uint64(1) << (10 + src[5]>>3)
		f.window = base + base/8*uint64(src[5]&7)
		if f.window > zstdWindow {
			return 0, fmt.Errorf("window of %d bytes: at most %d are permitted (RFC 9659), so compress with a smaller one", f.window, zstdWindow)
		}
	}
	return end, nil
}

func isZero(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

// walkBlocks reads the headers of all blocks from at on and returns the place behind the last one.
func (f *zstdFrame) walkBlocks(src []byte, at int) (int, error) {
	most := min(f.window, zstdBlock)
	for last := false; !last; {
		if len(src)-at < 3 {
			return at, errTruncated
		}
		header := uint64(src[at]) | uint64(src[at+1])<<8 | uint64(src[at+2])<<16
		last = header&1 != 0
		size, stored := header>>3, int(header>>3)
		if size > most {
			return at, fmt.Errorf("block of %d bytes: at most %d are permitted", size, most)
		}
		switch header >> 1 & 3 {
		case zstdRLE:
			stored = 1
			fallthrough
		case zstdRaw:
			f.least += int64(size)
			f.most += int64(size)
		case zstdCompressed:
			f.most += int64(most)
		default:
			return at, errors.New("block of an unknown type")
		}
		if len(src)-at-3 < stored {
			return at, errTruncated
		}
		at += 3 + stored
	}
	return at, nil
}

// declaredZstd returns the sum of the sizes of all frames.
func declaredZstd(src []byte) (int64, bool) {
	var total uint64
	known := false
	for len(src) > 0 {
		f, _, err := walkZstd(src)
		if err != nil || !f.skipped && !f.hasSize {
			return 0, false
		}
		total += f.size
		known = true
		src = src[f.bytes:]
	}
	return int64(min(total, math.MaxInt64)), known
}

func (d *Decompressor) appendZstd(out *output, src []byte) error {
	for at := 0; at < len(src); {
		f, fault, err := walkZstd(src[at:])
		if err != nil {
			return invalid(Zstd, at+fault, err)
		}
		if !f.skipped {
			err = d.appendZstdFrame(out, f, src[at:at+f.bytes])
		}
		if errors.Is(err, ErrTooLarge) {
			return err
		}
		if err != nil {
			return invalid(Zstd, at, err)
		}
		at += f.bytes
	}
	return nil
}

// appendZstdFrame decompresses one frame directly into the spare capacity of the output. The decoder gets enough capacity that it never
// allocates an output of its own: the size that the headers permit, or the rest of the limit plus one block. It stops after the block
// that makes the frame too large.
func (d *Decompressor) appendZstdFrame(out *output, f zstdFrame, src []byte) error {
	room := uint64(out.room())
	if f.hasSize && f.size > room || uint64(f.least) > room {
		return out.tooLarge()
	}
	need, most := uint64(f.most), uint64(math.MaxInt64)
	switch {
	case f.hasSize:
		need = f.size
	case need > room:
		// The decoder refuses frames with a window larger than its limit.
		most = max(room, f.window)
		need = most + zstdBlock
	}
	if err := d.openZstd(most); err != nil {
		return err
	}
	out.reserve(int(need) + slack)
	spare := out.spare(cap(out.buf) - len(out.buf))
	got, err := d.zstd.DecodeAll(src, spare[:0])
	switch {
	case uint64(len(got)) > room, errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return out.tooLarge()
	case err != nil:
		return err
	}
	if len(got) > 0 && &got[0] != &spare[0] {
		return out.append(got) // the decoder needed more room than it used
	}
	out.extend(len(got))
	return nil
}

// openZstd prepares the decoder for frames that decompress to no more than most bytes.
func (d *Decompressor) openZstd(most uint64) (err error) {
	switch {
	case d.zstd == nil:
		// walkZstd checks windows. A frame of one segment has its content for a window.
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most), zstd.WithDecoderMaxWindow(1<<41))
	case d.zstdMost != most:
		err = d.zstd.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(most))
		if errors.Is(err, zstd.ErrDecoderNilInput) {
			err = nil
		}
	}
	d.zstdMost = most
	return err
}
