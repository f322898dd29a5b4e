package unpack

import (
	"sync"
	"unsafe"

	"millrace/internal/frame"
	"millrace/internal/invariants"
	"millrace/internal/table"
)

// buffers is the memory for the records of a message and for their results.
type buffers struct {
	Table   table.Table // results of the records
	Encoded []byte      // encoded results

	body  []byte // the decompressed body; unused if the message was not compressed
	split frame.Frame
	kept  int64 // bytes that count as kept while the buffers are idle
}

// size returns the bytes of memory that the buffers take.
func (b *buffers) size() int64 {
	return int64(unsafe.Sizeof(*b)) + int64(cap(b.Encoded)+cap(b.body)) + b.Table.Size() + b.split.Size()
}

// idleBuffers keeps buffers between messages. It is last in, first out, so only as many grow large as are in use at the same time.
type idleBuffers struct {
	retain func(before, now int64) bool // changes the count of memory that is kept; see New

	mu    sync.Mutex
	stack []*buffers
}

// take returns buffers, empty or with the memory of an earlier message.
func (i *idleBuffers) take() *buffers {
	i.mu.Lock()
	defer i.mu.Unlock()
	last := len(i.stack) - 1
	if last < 0 {
		return &buffers{}
	}
	b := i.stack[last]
	i.stack[last] = nil
	i.stack = i.stack[:last]
	i.retain(b.kept, 0)
	return b
}

// put keeps buffers that no message uses, unless that is too much memory.
func (i *idleBuffers) put(b *buffers) {
	b.split.Reset() // releases the message
	invariants.Poison(b.body)
	invariants.Poison(b.Encoded)
	b.Table.Poison()
	if b.kept = b.size(); i.retain(0, b.kept) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.stack = append(i.stack, b)
	}
}
