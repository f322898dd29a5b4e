//go:build noembedded

package embedded_test

import (
	"errors"
	"testing"

	"millrace/internal/ingest/embedded"
)

// TestStartWithoutServer shows that Start fails with ErrLeftOut in builds with the tag noembedded.
func TestStartWithoutServer(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if s != nil || !errors.Is(err, embedded.ErrLeftOut) || embedded.Included || embedded.Version != "" {
		t.Errorf("Start gives %v and %v, Included is %v and Version %q", s, err, embedded.Included, embedded.Version)
	}
}
