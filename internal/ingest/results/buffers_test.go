package results

import (
	"testing"

	"millrace/internal/ingest/inflight"
)

func TestBuffersKeepNoMoreThanTheyMay(t *testing.T) {
	t.Parallel()
	s := &Buffers{left: make([]int, 100)}
	s.Tidy(&inflight.Pool{})
	if s.left != nil || s.kept != 0 {
		t.Errorf("settle buffers keep %d bytes beyond the bound", s.kept)
	}
}
