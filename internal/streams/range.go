package streams

import "fmt"

// Named ranges for a profiler, with the names of the trace: "batch 7" from its submission to its completion, and
// within it "copy_in", "compute" and "copy_out" while the host enqueues them.

// rangeOf opens a range and returns what closes it.
func (p *Pipeline) rangeOf(name string) (end func()) {
	if p.ranger == nil {
		return func() {}
	}
	return p.ranger.Range(name)
}

// openRange opens the batch's range as it goes into flight. p.mu is held, as for closeRange.
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
