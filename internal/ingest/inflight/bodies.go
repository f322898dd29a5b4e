package inflight

// Bodies holds the encoded results of a batch, back to back.
type Bodies struct {
	Data []byte
	ends []int // end offset of each body
}

// Reserve allocates space for the given number of bytes. Growing step by step would take twice as much memory.
func (b *Bodies) Reserve(bytes int) {
	if cap(b.Data) < bytes {
		b.Data = make([]byte, 0, bytes)
	}
}

// Add adds a body. grown must be Data with the body appended.
func (b *Bodies) Add(grown []byte) {
	b.Data = grown
	b.ends = append(b.ends, len(grown))
}

// at returns the i-th body.
func (b *Bodies) at(i int) []byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.Data[start:b.ends[i]:b.ends[i]]
}

// Clear empties b and keeps its memory.
func (b *Bodies) Clear() { b.Data, b.ends = b.Data[:0], b.ends[:0] }
