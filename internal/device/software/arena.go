package software

import (
	"slices"

	"millrace/internal/device"
)

// Stream is the part of a device's stream that a pool uses.
type Stream interface {
	// Passed reports whether the stream has carried out the operation with that number. Numbers ascend in the order in
	// which operations were enqueued.
	Passed(operation uint64) bool
}

// mark is a point in a stream: the end of one of its operations. The zero mark refers to no point.
type mark struct {
	stream    Stream
	operation uint64
}

func (m mark) passed() bool { return m.stream == nil || m.stream.Passed(m.operation) }

type blockState uint8

const (
	blockFree    blockState = iota // may be handed out to streams that come after the mark
	blockUsed                      // handed out
	blockFreeing                   // Pool.Free is running
)

// block is a span of an arena.
type block struct {
	off, size int // multiples of Alignment
	asked     int // size that the caller asked for, if the block is handed out
	state     blockState
	freed     mark // where its last user freed it; zero once that point was passed
}

// usableBy reports whether work that s enqueues from now on may use the block, because no other stream's work on it can
// still follow.
func (b *block) usableBy(s Stream) bool {
	return b.state == blockFree && (b.freed.stream == nil || b.freed.stream == s)
}

// arena is one segment that is divided into blocks without gaps, in address order.
type arena struct {
	seg    *segment
	blocks []block
}

func newArena(seg *segment) *arena {
	return &arena{seg: seg, blocks: []block{{size: len(seg.mem)}}}
}

// settle clears the marks that streams have passed, and merges free neighbours that were freed on the same stream or
// have no mark.
func (a *arena) settle() {
	for i := range a.blocks {
		if b := &a.blocks[i]; b.state == blockFree && b.freed.passed() {
			b.freed = mark{}
		}
	}
	a.mergeFor(nil)
}

// mergeFor merges free neighbours that were freed on the same stream or have no mark. It also merges neighbours that s
// may use, even if other streams could use only one of them. s may be nil.
func (a *arena) mergeFor(s Stream) {
	last := 0
	for i := 1; i < len(a.blocks); i++ {
		x, y := &a.blocks[last], &a.blocks[i]
		if !x.joins(y, s) {
			if last++; last != i {
				a.blocks[last] = *y
			}
			continue
		}
		x.size += y.size
		if y.freed.operation > x.freed.operation {
			x.freed = y.freed // of the same stream, or x had no mark
		}
	}
	clear(a.blocks[last+1:]) // so that unused entries keep no stream reachable
	a.blocks = a.blocks[:last+1]
}

// joins reports whether b and its neighbour may be merged for s.
func (b *block) joins(next *block, s Stream) bool {
	if b.state != blockFree || next.state != blockFree {
		return false
	}
	return b.freed.stream == next.freed.stream || b.usableBy(s) && next.usableBy(s)
}

// take hands out the first size bytes of block i, which must be free and large enough.
func (a *arena) take(i, size, asked int) device.Memory {
	b := a.blocks[i]
	if rest := b.size - size; rest > 0 {
		a.blocks = slices.Insert(a.blocks, i+1, block{off: b.off + size, size: rest, freed: b.freed})
	}
	a.blocks[i] = block{off: b.off, size: size, asked: asked, state: blockUsed}
	return device.Memory{Addr: a.seg.base + uint64(b.off), Bytes: asked}
}

// blockOver returns the block that covers addr, or nil if addr is not in this arena.
func (a *arena) blockOver(addr uint64) *block {
	if addr < a.seg.base || addr-a.seg.base >= uint64(len(a.seg.mem)) {
		return nil
	}
	off := int(addr - a.seg.base)
	i, exact := slices.BinarySearchFunc(a.blocks, off, func(b block, off int) int { return b.off - off })
	if !exact {
		i--
	}
	return &a.blocks[i]
}

// idle reports whether the whole arena is free and all marks have been passed.
func (a *arena) idle() bool {
	a.settle()
	return len(a.blocks) == 1 && a.blocks[0].state == blockFree && a.blocks[0].freed.stream == nil
}
