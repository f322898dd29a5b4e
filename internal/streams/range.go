package streams

import "fmt"

// This file opens named ranges for a profiler, with the same names as the trace: "batch 7" from submission to
// completion, and within it "copy_in", "compute" and "copy_out" while the host enqueues them.

// rangeOf opens a range and returns the function that closes it.
func (p *Pipeline) rangeOf(name string) (end func()) {
	if p.ranger == nil {
		return func() {}
	}
	return p.ranger.Range(name)
}

// openRange opens the batch's range when the batch goes into flight. The caller of openRange and closeRange holds p.mu.
func (b *Batch) openRange() {
	if b.pipe.ranger != nil {
		b.ended = b.pipe.ranger.Range(fmt.Sprintf("batch %d", b.record.Batch))
	}
}

func (b *Batch) closeRange() {
	if b.ended != nil {
		b.ended()
		b.ended = nil
	}
}
