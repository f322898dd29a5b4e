package audit

import (
	"fmt"
	"slices"
)

// frames follows the results that have several parts, and the dead letters of single records. The last part of a result is stored after all
// others of its cut. Parts of other cuts may stay in the stream (adr/0039).
type frames struct {
	open  map[uint64][]cutParts // by sequence of the input: parts of results whose last part wasn't read
	parts int                   // in open
	seen  recent
	full  bool // open had no room for a part
}

// mostParts bounds the parts in open.
const mostParts = 1 << 21

// cutParts is the parts that were read of one cut of a result.
type cutParts struct {
	stored int64 // of the input
	cut    string
	count  int          // of all parts
	have   map[int]bool // by index
}

func newFrames() *frames { return &frames{open: map[uint64][]cutParts{}} }

// enter takes a message that doesn't settle its input: a part before the last, or the dead letter of a record. It returns what is wrong.
func (f *frames) enter(m *message) (wrong string) {
	key, name := recentKey{m.sequence, m.stored, m.part.Index, m.cut + "/" + m.part.String()}, "part "+m.part.String()
	if m.record != whole {
		key, name = recentKey{m.sequence, m.stored, m.record, ""}, fmt.Sprint("the dead letter of record ", m.record)
	}
	if f.seen.add(key) {
		return name + " is stored twice"
	}
	if m.record == whole {
		f.add(m)
	}
	return ""
}

// add records a part that isn't the last.
func (f *frames) add(m *message) {
	if f.parts >= mostParts {
		f.full = true
		return
	}
	f.parts++
	cuts := f.open[m.sequence]
	i := slices.IndexFunc(cuts, func(c cutParts) bool { return c.is(m) })
	if i < 0 {
		cuts, i = append(cuts, cutParts{m.stored, m.cut, m.part.Count, map[int]bool{}}), len(cuts)
		f.open[m.sequence] = cuts
	}
	cuts[i].have[m.part.Index] = true
}

func (c *cutParts) is(m *message) bool {
	return c.stored == m.stored && c.cut == m.cut && c.count == m.part.Count
}

// finish takes the last part of a result, and returns what it lacks.
func (f *frames) finish(m *message) (lacks string) {
	have := map[int]bool{}
	for _, c := range f.open[m.sequence] {
		f.parts -= len(c.have)
		if c.is(m) {
			have = c.have
		}
	}
	delete(f.open, m.sequence)
	if f.full || len(have) == m.part.Count-1 {
		return ""
	}
	first := 1
	for have[first] {
		first++
	}
	return fmt.Sprintf("%d of %d parts of its result are missing, the first of them part %d", m.part.Count-1-len(have), m.part.Count, first)
}

// unfinished says which parts of an input without an outcome are stored; empty for none.
func (f *frames) unfinished(sequence uint64) string {
	cuts := f.open[sequence]
	if len(cuts) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d parts of a result are stored, and the last one isn't", len(cuts[0].have), cuts[0].count)
}

// recent remembers the last messages, at least recentSize of them.
type recent struct{ now, before map[recentKey]struct{} }

// recentKey identifies a message of a frame.
type recentKey struct {
	sequence uint64
	stored   int64
	index    int
	cut      string
}

// recentSize bounds the memory of recent, to about 100 MB.
const recentSize = 1 << 19

// add remembers a message, and reports whether it was there.
func (r *recent) add(k recentKey) bool {
	if _, there := r.now[k]; there {
		return true
	}
	if _, there := r.before[k]; there {
		return true
	}
	if r.now == nil || len(r.now) >= recentSize {
		r.now, r.before = map[recentKey]struct{}{}, r.now
	}
	r.now[k] = struct{}{}
	return false
}
