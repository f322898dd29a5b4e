package neardup

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// entryOf returns an entry with unchecked rows and their keys.
func entryOf(h Header, list ...row) []byte {
	var rows, keys []byte
	previous := h.Previous
	for _, r := range list {
		rows = h.Parameters.appendRow(rows, &r, previous)
		previous = r.position
		keys = append(keys, r.keys...)
	}
	h.rowBytes = len(rows)
	return append(append(h.encode(nil), keys...), rows...)
}

// TestContradictions replays entries with one mistake each. The error must describe the mistake.
func TestContradictions(t *testing.T) {
	p := Parameters{Bands: 3, Rows: 1, K: 24, Seed: 42, Records: 2}
	one, two, three := Position{Sequence: 5, Record: 0}, Position{Sequence: 5, Record: 1}, Position{Sequence: 9, Record: 7}
	keys := func(values ...uint32) (keys []byte) {
		for _, key := range p.AppendKeys(nil, values) {
			keys = binary.LittleEndian.AppendUint64(keys, key)
		}
		return keys
	}
	header := func(change func(*Header)) Header {
		h := Header{Parameters: p, Records: 1, Last: one}
		change(&h)
		return h
	}
	same := header(func(*Header) {})
	good := row{position: one, label: one, inserted: 7, keys: keys(1, 2, 3)}
	with := func(change func(*row)) row {
		r := good
		change(&r)
		return r
	}
	second := header(func(h *Header) { h.First, h.Previous, h.Last = 1, one, two })
	next := header(func(h *Header) { h.Generation, h.Previous, h.Last = 1, two, three })
	other := row{position: two, label: one, inserted: 6, keys: keys(1, 4, 5)[KeyBytes:]}
	patched := func(at int, bytes ...byte) []byte {
		e := entryOf(same, good)
		copy(e[at:], bytes)
		return e
	}
	raw := func(rows ...byte) []byte {
		h := same
		h.rowBytes = len(rows)
		return append(h.encode(nil), rows...)
	}
	carried := func(carries ...carry) row {
		return row{position: three, label: one, inserted: 7, keys: keys(1, 4, 6), carries: len(carries), carried: carries}
	}
	begin := [][]byte{entryOf(same, good), entryOf(second, other)}
	if x := newIndex(t, p); x.Replay(begin[0]) != nil || x.Replay(begin[1]) != nil || x.Replay(entryOf(next, carried(carry{3, one}))) != nil {
		t.Fatal("the valid entries, from which the others are derived, are refused:", x.broken)
	}

	for _, c := range []struct {
		before [][]byte
		entry  []byte
		want   string
	}{
		{nil, nil, "isn't an entry"},
		{nil, patched(0, 'm'), "isn't an entry"},
		{nil, patched(4, 2), "version 2"},
		{nil, patched(6, 0), "bands is 0"},
		{nil, patched(31, 0x80), "generation"},
		{nil, patched(64, 0), "records 0 to -1"},
		{nil, patched(64, 3), "records 0 to 2 of a generation of 2"},
		{nil, patched(68, 1), "of rows"},
		{nil, patched(68, 255, 255, 255, 255), "of rows"},
		{nil, entryOf(header(func(h *Header) { h.Previous = one }), good), "last position is not after"},
		{nil, entryOf(header(func(h *Header) { h.Previous.Record = 1 }), good), "has a position before it"},
		{nil, entryOf(second, other), "without gaps"},
		{begin[:1], entryOf(next, good), "without gaps"},
		{begin[:1], entryOf(header(func(h *Header) { h.First, h.Previous, h.Last = 1, Position{Sequence: 5, Record: 0xFFFF}, three }), other), "without gaps"},

		{nil, entryOf(same, with(func(r *row) { r.position.Sequence, r.label.Sequence = 6, 6 })), "out of order"},
		{nil, entryOf(header(func(h *Header) { h.Last = two }), good), "doesn't end"},
		{nil, entryOf(same, good, other), "doesn't end"},
		{nil, append(entryOf(same, good), 0, 0, 0, 0, 0, 0, 0, 0), "record 0 of generation 0"},
		{nil, raw(255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), "too large"},
		{nil, raw(5), "truncated"},
		{nil, raw(5, 0), "truncated"},
		{nil, raw(5, 0, 0), "truncated"},
		{nil, raw(5, 0, 0, 0), "truncated"},
		{nil, raw(5, 0, 0, 1, 2), "truncated"},
		{nil, raw(5, 0, 0, 1, 2, 1), "truncated"},
		{nil, entryOf(header(func(h *Header) { h.Records, h.Last = 2, two }), good), "truncated"},
		{nil, entryOf(same, with(func(r *row) { r.label = two })), "out of order"},
		{nil, entryOf(same, with(func(r *row) { r.label.Sequence = math.MaxUint64 - 9 })), "too large"},
		{nil, entryOf(same, with(func(r *row) { r.inserted = 8 })), "contradict"},
		{nil, entryOf(same, with(func(r *row) { r.inserted = 3 })), "doesn't end"},
		{nil, entryOf(same, with(func(r *row) { r.keys = r.keys[:2*KeyBytes] })), "truncated"},
		{nil, entryOf(same, with(func(r *row) { r.keys = keys(1, 1, 1)[KeyBytes:]; r.inserted = 5 })), "contradict"},
		{nil, entryOf(same, with(func(r *row) { r.keys = make([]byte, 3*KeyBytes) })), "contradict"},
		{nil, entryOf(same, with(func(r *row) { r.relabeled = true })), "contradict"},
		{nil, entryOf(same, with(func(r *row) { r.carries, r.relabeled = 4, true })), "contradict"},
		{nil, entryOf(same, with(func(r *row) { r.carries, r.relabeled = 1, true })), "carries labels wrongly"},
		{begin[:1], entryOf(second, with(func(r *row) { r.position, r.label = two, one })), "there already"},
		{begin, entryOf(next, carried(carry{1, one}, carry{2, two}, carry{4, one})), "carries labels wrongly"},
		{begin, entryOf(next, carried(carry{0, one})), "contradict"},
		{begin, entryOf(next, carried(carry{3, one}, carry{2, one})), "contradict"},
		{begin, entryOf(next, carried(carry{8, one})), "contradict"},
		{begin, entryOf(next, carried(carry{1, three})), "out of order"},
	} {
		x := newIndex(t, p)
		for _, e := range c.before {
			if err := x.Replay(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Replay(c.entry); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want an error with %q", err, c.want)
		}
	}
}
