package audit

import (
	"fmt"
)

// span is the range of inputs to audit. The sequences at its time limits become known while outcomes are read, because
// only an outcome has the storage time of a removed input.
type span struct {
	from, to     uint64 // first and last sequence
	since, until int64  // nanoseconds since 1970; 0 means no limit

	before uint64 // highest known sequence stored before since; 0 if there is none
	after  uint64 // lowest known sequence stored at until or later; 0 if there is none
}

// has reports whether an input is in the span. It updates before and after from the input's storage time.
func (s *span) has(sequence uint64, stored int64) bool {
	switch {
	case s.since > 0 && stored < s.since:
		s.before = max(s.before, sequence)
		return false
	case s.until > 0 && stored >= s.until:
		s.after = firstOf(s.after, sequence)
		return false
	}
	return sequence >= s.from && sequence <= s.to
}

// bounds returns the first and the last sequence of the span, as far as they are known.
func (s *span) bounds() (first, last uint64) {
	first, last = s.from, s.to
	if s.since > 0 {
		first = max(first, s.before+1)
	}
	if s.after > 0 {
		last = min(last, s.after-1)
	}
	return first, last
}

// firstOf returns the lower of two sequences. It ignores a sequence of 0, which means none.
func firstOf(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// kind is the known outcome of an input.
type kind byte

// These are the kinds. They fit into kindBits.
const (
	none   kind = iota // no outcome was read
	result             // one result
	letter             // one dead letter
	double             // more than one outcome
)

// kindNames has the names of single outcomes for people.
var kindNames = [...]string{result: "result", letter: "dead letter"}

const (
	kindBits = 2
	pageBits = 16
	pageSize = 1 << pageBits

	// maxPages limits the memory of a table to 256 MiB.
	maxPages = 4096
)

// table holds the outcomes of inputs by sequence. An entry is one byte with the kind and a hash of the input's storage
// time. The hash is 0 if the time isn't known. The hash distinguishes inputs that have the same sequence because the
// stream was restored from an older copy.
type table struct {
	pages map[uint64]*[pageSize]byte
	page  *[pageSize]byte // the page used last
	at    uint64          // number of that page
}

func newTable() *table { return &table{pages: map[uint64]*[pageSize]byte{}} }

// errTooMany is the error for inputs that exceed the capacity of a table.
var errTooMany = fmt.Errorf("more than %d inputs have outcomes: audit fewer at once (--from, --to, --since, --until)", maxPages*pageSize)

// enter records an outcome of the input with the given sequence and storage time. before is the previous kind of the
// input. If the entry belongs to another input with the same sequence, other is true and the entry doesn't change.
func (t *table) enter(sequence uint64, k kind, stored int64) (before kind, other bool, err error) {
	e, err := t.entry(sequence)
	if err != nil {
		return none, false, err
	}
	before = kind(*e & (1<<kindBits - 1))
	had, has := *e>>kindBits, hash(stored)
	switch {
	case before == none:
		*e = has<<kindBits | byte(k)
	case had != has && had != 0 && has != 0:
		return before, true, nil
	default:
		*e = had<<kindBits | byte(double)
	}
	return before, false, nil
}

// hash returns 0 for the time 0, and otherwise a number from 1 to 63.
func hash(stored int64) byte {
	const hashes, golden = 1<<(8-kindBits) - 1, 0x9e3779b97f4a7c15
	if stored == 0 {
		return 0
	}
	return 1 + byte(uint64(stored)*golden>>32%hashes)
}

func (t *table) entry(sequence uint64) (*byte, error) {
	if number := sequence >> pageBits; t.page == nil || t.at != number {
		p := t.pages[number]
		if p == nil {
			if len(t.pages) >= maxPages {
				return nil, errTooMany
			}
			p = new([pageSize]byte)
			t.pages[number] = p
		}
		t.page, t.at = p, number
	}
	return &t.page[sequence%pageSize], nil
}

// of returns the kind of an input.
func (t *table) of(sequence uint64) kind {
	p := t.pages[sequence>>pageBits]
	if p == nil {
		return none
	}
	return kind(p[sequence%pageSize] & (1<<kindBits - 1))
}

// runs calls visit for each run of sequences of the same kind, in order, until visit returns an error. It may split a
// run into several calls.
func (t *table) runs(first, last uint64, visit func(k kind, first, last uint64) error) error {
	for first <= last {
		end := min(last, first|(pageSize-1))
		k := t.of(first)
		next := first + 1
		if t.pages[first>>pageBits] == nil {
			next = end + 1
		}
		for next <= end && t.of(next) == k {
			next++
		}
		if err := visit(k, first, next-1); err != nil {
			return err
		}
		first = next
	}
	return nil
}
