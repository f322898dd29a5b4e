package ingest

import (
	"testing"

	"millrace/internal/ingest/inflight"
)

func TestADeskKeepsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	d := &desk{left: make([]int, 100)}
	d.fit(&inflight.Pool{})
	if d.left != nil || d.kept != 0 {
		t.Errorf("a desk keeps %d bytes beyond the bound", d.kept)
	}
}
