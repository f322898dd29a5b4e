package sim

import "slices"

// chunk is memory that a pool took from the device, cut into segments that cover it in order.
type chunk struct {
	base     uint64
	data     []byte
	segments []segment
}

// segment is a part of a chunk: taken, or free for some or all streams.
type segment struct {
	bytes int         // a multiple of alignment
	owner *allocation // nil: free
	fence *fence      // of a free segment: where it was freed; nil if it was never used
}

// fence is a place in a stream where memory is freed.
type fence struct {
	stream  *Stream
	reached bool
}

func newChunk(base uint64, bytes int) *chunk {
	return &chunk{base: base, data: make([]byte, bytes), segments: []segment{{bytes: bytes}}}
}

// availableTo says whether work enqueued on s from now on may have the segment. The stream that freed it
// may at once, because its new work comes after its old.
func (g *segment) availableTo(s *Stream) bool {
	return g.owner == nil && (g.idle() || g.fence.stream == s)
}

// idle says whether no work, queued or under way, uses the segment.
func (g *segment) idle() bool {
	return g.owner == nil && (g.fence == nil || g.fence.reached)
}

// free hands the segment back: to f's stream at once, to others when f is reached.
func (g *segment) free(f *fence) { g.owner, g.fence = nil, f }

// unused says whether the whole chunk is idle.
func (c *chunk) unused() bool {
	return !slices.ContainsFunc(c.segments, func(g segment) bool { return !g.idle() })
}

// owned returns the segment that a takes.
func (c *chunk) owned(a *allocation) *segment {
	i := slices.IndexFunc(c.segments, func(g segment) bool { return g.owner == a })
	return &c.segments[i]
}

// carve gives a the first run of neighbouring segments with room for bytes that s may use. It returns
// false if there is none.
func (c *chunk) carve(s *Stream, a *allocation, bytes int) bool {
	need := int(roundUp(int64(bytes), alignment))
	for first, off := 0, 0; first < len(c.segments); {
		last, room := first, 0
		for last < len(c.segments) && room < need && c.segments[last].availableTo(s) {
			room += c.segments[last].bytes
			last++
		}
		if room >= need {
			c.assign(first, last, a, need, room-need)
			a.base = c.base + uint64(off)
			a.data = c.data[off : off+bytes : off+bytes]
			return true
		}
		if last == len(c.segments) {
			return false
		}
		// The segment at last is not to be had: go on behind it.
		off += room + c.segments[last].bytes
		first = last + 1
	}
	return false
}

// assign makes one segment of those from first up to last and gives it to a. rest bytes of the last one
// stay free as they were.
func (c *chunk) assign(first, last int, a *allocation, need, rest int) {
	parts := []segment{{bytes: need, owner: a}}
	if rest > 0 {
		parts = append(parts, segment{bytes: rest, fence: c.segments[last-1].fence})
	}
	c.segments = slices.Replace(c.segments, first, last, parts...)
}
