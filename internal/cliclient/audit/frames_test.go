package audit

import (
	"testing"

	"millrace/client"
)

// TestPartsOfFinishedResultsTakeNoRoom shows that finished results use no memory. Otherwise an audit of many frames
// would stop checking parts.
func TestPartsOfFinishedResultsTakeNoRoom(t *testing.T) {
	t.Parallel()
	f := newFrames()
	part := func(index int, cut string) *message {
		return &message{sequence: 1, stored: 1, record: whole, part: client.Part{Index: index, Count: 3}, cut: cut}
	}
	for _, m := range []*message{part(1, "given up"), part(1, "a"), part(2, "a")} {
		if wrong := f.enter(m); wrong != "" {
			t.Error(wrong)
		}
	}
	if f.parts != 3 {
		t.Errorf("%d parts are open, want 3", f.parts)
	}
	if lacks := f.finish(part(3, "a")); lacks != "" || f.parts != 0 || len(f.open) != 0 {
		t.Errorf("after the last part, %d parts of %d results are open: %q", f.parts, len(f.open), lacks)
	}
}
