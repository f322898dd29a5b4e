package quarantine

import (
	"slices"
	"testing"

	"millrace/internal/ingest/inflight"
)

// TestBytesInFlightAreBounded shows that a held set with the bytes of a batch accepts no more payloads. The payloads
// that are tried at once fit into one batch.
func TestBytesInFlightAreBounded(t *testing.T) {
	const limit = 100
	l := Levels{Full: 64, Limit: 10}
	h := heldSet{g: &inflight.Batch{}}
	add := func(size, headers, level int) {
		h.add(inflight.Delivery{Msg: &paperMsg{data: make([]byte, size)}, HeaderBytes: headers, Level: level})
	}
	add(60, 0, 0)
	if got := h.room(l, limit); got != 63 {
		t.Errorf("with 60 of %d bytes there is room for %d more, want 63 of a batch of 64", limit, got)
	}
	add(39, 0, 0)
	add(1, 0, 0)
	if got := h.room(l, limit); got != 0 {
		t.Errorf("with all of %d bytes there is room for %d more", limit, got)
	}
	add(90, 0, 0) // arrived before the space was checked
	var parts [][]int
	for len(h.left) > 0 {
		_, part := h.next(l, limit)
		parts = append(parts, part)
	}
	if want := [][]int{{0, 1, 2}, {3}}; !slices.EqualFunc(parts, want, slices.Equal) {
		t.Errorf("tried at once are %v, want %v: no more bytes than a batch takes", parts, want)
	}
	h.clear()
	add(0, limit, 0)
	if got := h.room(l, limit); got != 0 {
		t.Errorf("with %d bytes of headers there is room for %d more", limit, got)
	}
}
