package compression

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// RFC 8878 specifies the zstd format. The library decodes frames, but doesn't report the position of a fault or the
// memory that it will need. Therefore, this file first reads the headers of all blocks, which have 3 bytes each.
const (
	zstdBlock  = 128 << 10 // maximum size of a block
	zstdWindow = 8 << 20   // maximum size of a window: the limit of RFC 9659 for a Content-Encoding
)

// zstdFrame has the content of a frame's headers.
type zstdFrame struct {
	zstd.Header
	bytes    int   // length of the frame
	min, max int64 // decompressed size according to the headers of the blocks
}

// walkZstd reads the headers of the frame at the start of src. If it fails, at is the position of the fault.
func walkZstd(src []byte) (f zstdFrame, at int, err error) {
	switch err := f.Decode(src); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return f, 0, errTruncated
	case errors.Is(err, zstd.ErrMagicMismatch):
		return f, 0, notThis(Zstd)
	case err != nil:
		return f, 0, err
	case f.DictionaryID != 0:
		return f, 0, errDictID
	case f.WindowSize > zstdWindow:
		return f, 0, fmt.Errorf("window of %d bytes: at most %d are permitted (RFC 9659), so compress with a smaller window", f.WindowSize, zstdWindow)
	}
	f.bytes = f.HeaderSize
	if f.Skippable {
		f.bytes += int(f.SkippableSize)
	} else if err := f.walkBlocks(src); err != nil {
		return f, f.bytes, err
	}
	if f.HasCheckSum {
		f.bytes += 4
	}
	switch {
	case len(src) < f.bytes:
		return f, len(src), errTruncated
	case f.HasFCS && (f.FrameContentSize > uint64(f.max) || f.FrameContentSize < uint64(f.min)):
		return f, 0, errSize
	}
	return f, 0, nil
}

// walkBlocks adds the sizes of all blocks to the frame. If it fails, z.bytes is the position of the faulty block.
func (z *zstdFrame) walkBlocks(src []byte) error {
	const rle, compressed = 1, 2
	for last := false; !last; {
		if len(src)-z.bytes < 3 {
			return errTruncated
		}
		header := int(src[z.bytes]) | int(src[z.bytes+1])<<8 | int(src[z.bytes+2])<<16
		last = header&1 != 0
		size, kind := header>>3, header>>1&3
		if size > zstdBlock {
			return fmt.Errorf("block of %d bytes: at most %d are permitted", size, zstdBlock)
		}
		stored := size
		switch kind {
		case rle:
			stored = 1
		case compressed:
			z.max, size = z.max+zstdBlock, 0
		}
		z.min, z.max = z.min+int64(size), z.max+int64(size)
		if len(src)-z.bytes-3 < stored {
			return errTruncated
		}
		z.bytes += 3 + stored
	}
	return nil
}

// declaredZstd returns the sum of the sizes of all frames. It returns false if a frame is invalid or doesn't declare its size.
func declaredZstd(src []byte) (size int64, known bool) {
	for len(src) > 0 {
		f, _, err := walkZstd(src)
		if err != nil || !f.Skippable && !f.HasFCS {
			return 0, false
		}
		size += int64(f.FrameContentSize) // at most the size of the frame's blocks
		known, src = true, src[f.bytes:]
	}
	return size, known
}

func (d *Decompressor) appendZstd(out *output, src []byte) error {
	for at := 0; at < len(src); {
		f, fault, err := walkZstd(src[at:])
		if err == nil && !f.Skippable {
			err = d.appendZstdFrame(out, f, src[at:at+f.bytes])
		}
		if errors.Is(err, ErrTooLarge) {
			return err
		}
		if err != nil {
			return invalid(Zstd, at+fault, err)
		}
		at += f.bytes
	}
	return nil
}

// appendZstdFrame decompresses one frame directly into the spare capacity of the output. The reserved capacity is the
// size that the headers permit, or the rest of the limit plus one block. With less capacity, the decoder would allocate
// its own output. The decoder stops after the block that exceeds the limit.
func (d *Decompressor) appendZstdFrame(out *output, f zstdFrame, src []byte) error {
	room := int64(out.room())
	if f.min > room || f.HasFCS && int64(f.FrameContentSize) > room {
		return out.tooLarge()
	}
	need, limit := f.max, uint64(math.MaxInt64)
	switch {
	case f.HasFCS:
		need = int64(f.FrameContentSize)
	case need > room:
		limit = max(uint64(room), f.WindowSize) // the decoder refuses frames with a window larger than its limit
		need = int64(limit) + zstdBlock
	}
	if err := d.openZstd(limit); err != nil {
		return err
	}
	out.reserve(int(need) + slack)
	spare := out.spare(cap(out.buf) - len(out.buf))
	got, err := d.zstd.DecodeAll(src, spare[:0])
	switch {
	case int64(len(got)) > room, errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return out.tooLarge()
	case err != nil:
		return err
	}
	if len(got) > 0 && &got[0] != &spare[0] {
		return out.append(got) // the decoder allocated its own output
	}
	out.extend(len(got))
	return nil
}

// openZstd prepares the decoder for frames that decompress to at most limit bytes.
func (d *Decompressor) openZstd(limit uint64) (err error) {
	switch {
	case d.zstd == nil:
		// walkZstd checks windows. The window of a single-segment frame is its whole content.
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(limit), zstd.WithDecoderMaxWindow(1<<41))
	case d.zstdLimit != limit:
		if err = d.zstd.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(limit)); errors.Is(err, zstd.ErrDecoderNilInput) {
			err = nil
		}
	}
	d.zstdLimit = limit
	return err
}
