package compression

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
)

// This file implements the framing format of Snappy. S2 extends the format with another identifier and larger blocks.
const (
	snappyChunkHeader = 4 // type, length of 3 bytes
	snappyChecksum    = 4

	snappyCompressed   = 0x00
	snappyUncompressed = 0x01
	snappyLastReserved = 0x7f // readers must not skip types from 0x02 to 0x7f
	snappyIdentifier   = 0xff

	snappyMagic = "\xff\x06\x00\x00sNaPpY"
	s2Magic     = "\xff\x06\x00\x00S2sTwO"

	snappyBlock = 64 << 10 // maximum size of a block
	s2Block     = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snappySum returns the checksum of a block: a masked CRC-32C.
func snappySum(block []byte) uint32 {
	c := crc32.Checksum(block, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

type snappyChunk struct {
	kind byte
	data []byte // without the header
}

// cutSnappy returns the first chunk of src and the rest of src.
func cutSnappy(src []byte) (chunk snappyChunk, rest []byte, err error) {
	if len(src) < snappyChunkHeader {
		return snappyChunk{}, nil, errTruncated
	}
	n := int(src[1]) | int(src[2])<<8 | int(src[3])<<16
	if len(src)-snappyChunkHeader < n {
		return snappyChunk{}, nil, errTruncated
	}
	end := snappyChunkHeader + n
	return snappyChunk{kind: src[0], data: src[snappyChunkHeader:end]}, src[end:], nil
}

// size returns the decompressed size that the chunk declares.
func (s snappyChunk) size() (int, error) {
	if s.kind != snappyCompressed && s.kind != snappyUncompressed {
		return 0, nil
	}
	if len(s.data) < snappyChecksum {
		return 0, errTruncated
	}
	if s.kind == snappyUncompressed {
		return len(s.data) - snappyChecksum, nil
	}
	return s2.DecodedLen(s.data[snappyChecksum:])
}

func declaredSnappy(src []byte) (int64, bool) {
	if len(src) == 0 {
		return 0, false
	}
	var total int64
	for len(src) > 0 {
		chunk, rest, err := cutSnappy(src)
		if err != nil {
			return 0, false
		}
		n, err := chunk.size()
		if err != nil || n > s2Block {
			return 0, false
		}
		total, src = total+int64(n), rest
	}
	return total, true
}

func appendSnappy(out *output, src []byte) error {
	if size, ok := declaredSnappy(src); ok {
		if size > int64(out.room()) {
			return out.tooLarge()
		}
		out.reserve(int(size))
	}
	block := 0 // maximum size of a block; 0 before the first identifier
	for rest := src; len(rest) > 0; {
		at := len(src) - len(rest)
		chunk, behind, err := cutSnappy(rest)
		switch {
		case block == 0 && rest[0] != snappyIdentifier:
			return invalid(Snappy, at, notThis(Snappy))
		case err != nil:
			return invalid(Snappy, at, err)
		case chunk.kind == snappyIdentifier:
			block, err = identifySnappy(rest[:len(rest)-len(behind)])
		case chunk.kind <= snappyUncompressed:
			err = chunk.append(out, block)
		case chunk.kind <= snappyLastReserved:
			err = fmt.Errorf("chunk of the unknown type %#02x", chunk.kind)
		}
		if errors.Is(err, ErrTooLarge) {
			return err
		}
		if err != nil {
			return invalid(Snappy, at, err)
		}
		rest = behind
	}
	return nil
}

// identifySnappy returns the maximum size of a block after the stream identifier.
func identifySnappy(chunk []byte) (int, error) {
	switch string(chunk) {
	case snappyMagic:
		return snappyBlock, nil
	case s2Magic:
		return s2Block, nil
	}
	return 0, errors.New("unknown stream identifier: known are those of Snappy and S2")
}

// append decompresses the chunk's block. A block of more than limit bytes is corrupt.
func (s snappyChunk) append(out *output, limit int) error {
	n, err := s.size()
	if err != nil {
		return err
	}
	if n > limit {
		return fmt.Errorf("block of %d bytes: at most %d are permitted", n, limit)
	}
	if n > out.room() {
		return out.tooLarge()
	}
	out.reserve(n)
	block, into := s.data[snappyChecksum:], out.spare(n)
	if s.kind == snappyUncompressed {
		copy(into, block)
	} else if _, err := s2.Decode(into, block); err != nil {
		return err
	}
	if snappySum(into) != binary.LittleEndian.Uint32(s.data) {
		return errChecksum
	}
	out.extend(n)
	return nil
}

// appendSnappyStream appends src as a compressed stream that readers of Snappy and S2 accept.
func appendSnappyStream(dst, src []byte) []byte {
	dst = append(dst, snappyMagic...)
	for len(src) > 0 {
		block := src[:min(len(src), snappyBlock)]
		src = src[len(block):]

		const header = snappyChunkHeader + snappyChecksum
		start := len(dst)
		dst = reserve(dst, header+s2.MaxEncodedLen(len(block)))
		dst = dst[:cap(dst)]
		data := s2.EncodeSnappy(dst[start+header:], block)
		kind := byte(snappyCompressed)
		if len(data) >= len(block) {
			kind, data = snappyUncompressed, dst[start+header:start+header+len(block)]
			copy(data, block)
		}
		dst = dst[:start+header+len(data)]
		binary.LittleEndian.PutUint32(dst[start:], uint32(kind)|uint32(snappyChecksum+len(data))<<8)
		binary.LittleEndian.PutUint32(dst[start+snappyChunkHeader:], snappySum(block))
	}
	return dst
}
