package host

import (
	"slices"

	"millrace/internal/device"
)

type blockState uint8

const (
	blockFree    blockState = iota // may be handed out, to streams that come after the mark
	blockUsed                      // handed out
	blockFreeing                   // between the two: Pool.Free is at it
)

// block is a span of an arena.
type block struct {
	off, size int // multiples of 256
	asked     int // bytes asked for, of a block that is handed out
	state     blockState
	freed     mark // where its last user freed it; no mark once that was reached
}

// usableBy says whether work of s enqueued from now on may use the block: nobody else's can still come.
func (b *block) usableBy(s *stream) bool {
	return b.state == blockFree && (b.freed.stream == nil || b.freed.stream == s)
}

// arena is one segment, cut into blocks without gaps, in address order.
type arena struct {
	seg    *segment
	blocks []block
}

func newArena(seg *segment) *arena {
	return &arena{seg: seg, blocks: []block{{size: len(seg.mem)}}}
}

// settle forgets the marks that streams have reached, and puts neighbours with the same past together.
func (a *arena) settle() {
	for i := range a.blocks {
		if b := &a.blocks[i]; b.state == blockFree && b.freed.reached() {
			b.freed = mark{}
		}
	}
	a.merge(func(x, y *block) bool {
		return x.state == blockFree && y.state == blockFree && x.freed.stream == y.freed.stream
	})
}

// mergeFor puts neighbours together that s may use, though other streams might use one of them alone.
func (a *arena) mergeFor(s *stream) {
	a.merge(func(x, y *block) bool { return x.usableBy(s) && y.usableBy(s) })
}

// merge puts neighbours together where may says so. What comes out is free once both were.
func (a *arena) merge(may func(x, y *block) bool) {
	kept := a.blocks[:1]
	for _, b := range a.blocks[1:] {
		last := &kept[len(kept)-1]
		if !may(last, &b) {
			kept = append(kept, b)
			continue
		}
		last.size += b.size
		if b.freed.seq > last.freed.seq {
			last.freed = b.freed // of the same stream, or last had none
		}
	}
	a.blocks = kept
}

// take hands out the first size bytes of block i, which must be free and have them.
func (a *arena) take(i, size, asked int) device.Memory {
	b := a.blocks[i]
	if rest := b.size - size; rest > 0 {
		a.blocks = slices.Insert(a.blocks, i+1, block{off: b.off + size, size: rest, freed: b.freed})
	}
	a.blocks[i] = block{off: b.off, size: size, asked: asked, state: blockUsed}
	return device.Memory{Addr: a.seg.base + uint64(b.off), Bytes: asked}
}

// blockOver finds the block that covers addr; nil if it is not in this arena.
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

// idle says whether the whole arena is free and no stream need reach anything first.
func (a *arena) idle() bool {
	return len(a.blocks) == 1 && a.blocks[0].state == blockFree && a.blocks[0].freed.stream == nil
}
