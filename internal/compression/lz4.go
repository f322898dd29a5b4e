package compression

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
//
// This file reads frames itself and uses the library only for blocks. The library's reader keeps the last bytes of a
// frame of dependent blocks as a dictionary for later frames, even after a Reset. With that dictionary, a corrupt
// message could decompress to bytes of an earlier message.
const (
	lz4Magic        = 0x184D2204
	lz4Legacy       = 0x184C2102
	skippable       = 0x184D2A50 // the last 4 bits can have any value, as in zstd
	skippableHeader = 8          // magic, uint32 bytes

	lz4Version          = 1 << 6
	lz4VersionMask      = 3 << 6
	lz4Independent      = 1 << 5
	lz4BlockChecksum    = 1 << 4
	lz4ContentSize      = 1 << 3
	lz4ContentChecksum  = 1 << 2
	lz4Reserved         = 1 << 1
	lz4DictID           = 1 << 0
	lz4Uncompressed     = 1 << 31 // flag in the size of a block
	lz4Window           = 64 << 10
	lz4Ratio            = 255 // maximum number of decompressed bytes per byte of a block
	lz4SmallestMaxBlock = 4   // code for 64 KiB; each higher code, up to 7, is four times as large
)

// lz4Header is the descriptor of a frame.
type lz4Header struct {
	flags byte
	block int    // maximum decompressed size of a block
	size  uint64 // decompressed size, if lz4ContentSize is set
	bytes int    // length of the header, including the magic number
}

func (l lz4Header) has(flag byte) bool { return l.flags&flag != 0 }

// parseLZ4 parses the header of the frame at the start of src, including the magic number.
func parseLZ4(src []byte) (lz4Header, error) {
	const fixed = 7 // magic, flags, block size, checksum
	if len(src) < fixed {
		return lz4Header{}, errTruncated
	}
	h := lz4Header{flags: src[4], bytes: fixed}
	code := src[5] >> 4
	switch {
	case h.flags&lz4VersionMask != lz4Version:
		return lz4Header{}, fmt.Errorf("frame of version %d: only version 1 is known", h.flags>>6)
	case h.has(lz4DictID):
		return lz4Header{}, errDictID
	case h.has(lz4Reserved), code < lz4SmallestMaxBlock, code > 7, src[5]&0xf != 0:
		return lz4Header{}, errors.New("frame with unknown flags")
	}
	h.block = snappyBlock << (2 * (code - lz4SmallestMaxBlock))
	if h.has(lz4ContentSize) {
		if h.bytes += 8; len(src) < h.bytes {
			return lz4Header{}, errTruncated
		}
		h.size = binary.LittleEndian.Uint64(src[6:])
	}
	if byte(xxh32(src[4:h.bytes-1])>>8) != src[h.bytes-1] {
		return lz4Header{}, errors.New("the header's checksum is wrong")
	}
	return h, nil
}

// cutSkippable returns the part of src after the skippable frame at its start.
func cutSkippable(src []byte) ([]byte, error) {
	if len(src) < skippableHeader {
		return nil, errTruncated
	}
	n := uint64(binary.LittleEndian.Uint32(src[4:]))
	if uint64(len(src)-skippableHeader) < n {
		return nil, errTruncated
	}
	return src[skippableHeader+n:], nil
}

// declaredLZ4 returns the size that the first frame declares. To find later frames, it would have to read the headers of all blocks.
func declaredLZ4(src []byte) (int64, bool) {
	if len(src) < 4 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return 0, false
	}
	h, err := parseLZ4(src)
	if err != nil || !h.has(lz4ContentSize) || h.size/lz4Ratio > uint64(len(src)) {
		return 0, false
	}
	return int64(h.size), true
}

func appendLZ4(out *output, src []byte) error {
	for rest := src; len(rest) > 0; {
		at := len(src) - len(rest)
		if len(rest) < 4 {
			return invalid(LZ4, at, errTruncated)
		}
		var err error
		switch magic := binary.LittleEndian.Uint32(rest); {
		case magic == lz4Magic:
			f := lz4Frame{out: out, src: src, at: at, start: len(out.buf)}
			if err = f.read(); errors.Is(err, ErrTooLarge) {
				return err
			}
			at, rest = f.at, src[f.at:]
		case magic&^0xf == skippable:
			rest, err = cutSkippable(rest)
		case magic == lz4Legacy:
			err = errors.New("a legacy frame (lz4 -l): write frames of the current format")
		default:
			err = notThis(LZ4)
		}
		if err != nil {
			return invalid(LZ4, at, err)
		}
	}
	return nil
}

// lz4Frame reads one frame of src. If a method fails, at is the position of the fault.
type lz4Frame struct {
	lz4Header
	out   *output
	src   []byte
	at    int
	start int // length of the output before this frame
}

func (l *lz4Frame) read() (err error) {
	if l.lz4Header, err = parseLZ4(l.src[l.at:]); err != nil {
		return err
	}
	if l.has(lz4ContentSize) {
		switch {
		case l.size > uint64(l.out.room()):
			return l.out.tooLarge()
		case l.size/lz4Ratio > uint64(len(l.src)-l.at):
			return errSize
		}
		l.out.reserve(int(l.size))
	}
	l.at += l.bytes
	for more := true; more; {
		if more, err = l.readBlock(); err != nil {
			return err
		}
	}
	return l.readEnd()
}

// number returns the uint32 at a position of src.
func (l *lz4Frame) number(at int) (uint32, error) {
	if len(l.src)-at < 4 {
		return 0, errTruncated
	}
	return binary.LittleEndian.Uint32(l.src[at:]), nil
}

// readBlock reads a block. It returns false at the end mark after the last block.
func (l *lz4Frame) readBlock() (more bool, err error) {
	word, err := l.number(l.at)
	if err != nil {
		return false, err
	}
	if word == 0 {
		l.at += 4
		return false, nil
	}
	n := int(word &^ lz4Uncompressed)
	if n > l.block {
		return false, fmt.Errorf("block of %d bytes: the frame permits %d", n, l.block)
	}
	if n > len(l.src)-l.at-4 {
		return false, errTruncated
	}
	data, behind := l.src[l.at+4:l.at+4+n], l.at+4+n
	if l.has(lz4BlockChecksum) {
		sum, err := l.number(behind)
		if err != nil {
			return false, err
		}
		if sum != xxh32(data) {
			return false, errors.New("the block's checksum is wrong")
		}
		behind += 4
	}
	if word&lz4Uncompressed != 0 {
		err = l.out.append(data)
	} else {
		err = l.decompress(data)
	}
	if err == nil {
		l.at = behind
	}
	return true, err
}

// decompress decompresses a block. Blocks that aren't independent refer to earlier output.
func (l *lz4Frame) decompress(data []byte) error {
	var window []byte
	if !l.has(lz4Independent) {
		window = l.out.buf[max(l.start, len(l.out.buf)-lz4Window):]
	}
	possible := min(l.block, lz4Ratio*len(data))
	room := min(possible, l.out.room())
	l.out.reserve(room)
	if room > 0 { // the decoder crashes if dst is empty
		if n, err := lz4.UncompressBlockWithDict(data, l.out.spare(room), window); err == nil {
			l.out.extend(n)
			return nil
		}
	}
	if room < possible {
		// The decoder returns the same error for a corrupt block and for a block that is too large.
		n, err := lz4.UncompressBlockWithDict(data, make([]byte, possible), window)
		if err == nil && n > room {
			return l.out.tooLarge()
		}
		if err == nil {
			return nil // an empty block
		}
	}
	return errors.New("corrupt block")
}

// readEnd checks the size and the checksum of the content after the last block.
func (l *lz4Frame) readEnd() error {
	content := l.out.buf[l.start:]
	if l.has(lz4ContentSize) && l.size != uint64(len(content)) {
		return errSize
	}
	if !l.has(lz4ContentChecksum) {
		return nil
	}
	sum, err := l.number(l.at)
	if err != nil {
		return err
	}
	if sum != xxh32(content) {
		return errChecksum
	}
	l.at += 4
	return nil
}

// appendLZ4Frame compresses src into one frame of independent blocks, with the content's size and checksum.
func (c *Compressor) appendLZ4Frame(dst, src []byte) []byte {
	const (
		code  = 5 // blocks of 256 KiB
		block = 256 << 10
	)
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4Version|lz4Independent|lz4ContentSize|lz4ContentChecksum, code<<4)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(src)))
	dst = append(dst, byte(xxh32(dst[start+4:])>>8))
	for rest := src; len(rest) > 0; {
		data := rest[:min(len(rest), block)]
		rest = rest[len(data):]
		at := len(dst)
		dst = reserve(dst, 4+lz4.CompressBlockBound(len(data)))[:at+4]
		n, err := c.lz4.CompressBlock(data, dst[at+4:at+4+lz4.CompressBlockBound(len(data))])
		word := uint32(n)
		if err != nil || n == 0 || n >= len(data) {
			n = copy(dst[at+4:at+4+len(data)], data)
			word = uint32(n) | lz4Uncompressed
		}
		dst = dst[:at+4+n]
		binary.LittleEndian.PutUint32(dst[at:], word)
	}
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	return binary.LittleEndian.AppendUint32(dst, xxh32(src))
}

// The primes of xxHash: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
const (
	prime1 uint32 = 0x9E3779B1
	prime2 uint32 = 0x85EBCA77
	prime3 uint32 = 0xC2B2AE3D
	prime4 uint32 = 0x27D4EB2F
	prime5 uint32 = 0x165667B1
)

// xxh32 returns the XXH32 of b with seed 0, the checksum of LZ4 frames.
func xxh32(b []byte) uint32 {
	n := len(b)
	h := prime5
	if n >= 16 {
		v1, v2, v3, v4 := prime1, prime2, uint32(0), ^prime1+1
		v1 += prime2 // may overflow, unlike a constant expression
		for len(b) >= 16 {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*prime2, 13) * prime1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*prime2, 13) * prime1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*prime2, 13) * prime1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*prime2, 13) * prime1
			b = b[16:]
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += uint32(n)
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}
