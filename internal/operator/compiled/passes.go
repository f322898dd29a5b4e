package compiled

import (
	"errors"
	"fmt"
)

// Pass is code that works on a whole batch, block by block, before the records are computed. The number of blocks is
// (Constant + PerRow*rows + PerByte*bytes) / Share, rounded up.
type Pass struct {
	Name            string // the symbol is PassSymbol followed by the name
	Threads         int    // per block on a GPU
	Constant        int
	PerRow, PerByte int
	Share           int
}

// PassSymbol begins the name of a pass's kernel or function.
const PassSymbol = "millrace_operator_pass_"

// Blocks returns the number of blocks for a batch with that many records, which have that many bytes in total.
func (p Pass) Blocks(rows, bytes int) int {
	return (p.Constant + p.PerRow*rows + p.PerByte*bytes + p.Share - 1) / p.Share
}

// Scratch is the size of an operator's scratch memory: Bytes + PerRow*rows + PerByte*bytes. It is zero for an operator without passes.
type Scratch struct{ Bytes, PerRow, PerByte int }

// Size returns the bytes of scratch memory for a batch with that many records, which have that many bytes in total.
func (s Scratch) Size(rows, bytes int) int { return s.Bytes + s.PerRow*rows + s.PerByte*bytes }

// Bounds of passes and scratch memory, which keep every size and every number of blocks from overflowing.
const (
	mostConstantBlocks = 1 << 16
	mostScratch        = 1 << 30
	mostScratchPerRow  = 1 << 20
	mostScratchPerByte = 1 << 10
	faultBytes         = 4 // scratch memory begins with a uint32 for faults of passes
)

// passEntry is struct millrace_pass.
type passEntry struct {
	Name                                                [nameBytes]byte
	Threads, Constant, PerRow, PerByte, Share, Reserved uint32
}

// scratchEntry is the part of struct millrace_description about scratch memory.
type scratchEntry struct{ Bytes, PerRow, PerByte uint32 }

func (d *Description) addPass(entry []byte) error {
	var e passEntry
	read(entry, &e)
	name, err := text(e.Name[:])
	if err != nil {
		return err
	}
	blocks := uint64(e.Constant) + uint64(e.PerRow) + uint64(e.PerByte)
	switch {
	case !goodName(name):
		return fmt.Errorf("name %q", name)
	case e.Threads == 0 || e.Threads > mostThreads || e.Threads%warp != 0:
		return fmt.Errorf("%s has %d threads per block", name, e.Threads)
	case e.Share == 0 || blocks == 0 || e.Constant > mostConstantBlocks || blocks-uint64(e.Constant) > uint64(e.Share):
		return fmt.Errorf("%s has %d blocks, %d per record and %d per byte, divided by %d", name, e.Constant, e.PerRow, e.PerByte, e.Share)
	}
	for _, other := range d.Passes {
		if other.Name == name {
			return fmt.Errorf("two passes %s", name)
		}
	}
	d.Passes = append(d.Passes, Pass{Name: name, Threads: int(e.Threads), Constant: int(e.Constant), PerRow: int(e.PerRow),
		PerByte: int(e.PerByte), Share: int(e.Share)})
	return nil
}

func (d *Description) setScratch(e scratchEntry) error {
	switch {
	case len(d.Passes) == 0 && e != (scratchEntry{}):
		return errors.New("scratch memory without passes")
	case len(d.Passes) > 0 && e.Bytes < faultBytes:
		return fmt.Errorf("scratch memory of %d bytes: passes need %d", e.Bytes, faultBytes)
	case e.Bytes > mostScratch || e.PerRow > mostScratchPerRow || e.PerByte > mostScratchPerByte:
		return fmt.Errorf("scratch memory of %d bytes, %d per record and %d per byte", e.Bytes, e.PerRow, e.PerByte)
	}
	d.Scratch = Scratch{int(e.Bytes), int(e.PerRow), int(e.PerByte)}
	return nil
}
