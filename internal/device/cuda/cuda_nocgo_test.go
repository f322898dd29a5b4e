//go:build !cgo

package cuda_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
)

func TestWithoutCgo(t *testing.T) {
	_, open := cuda.Open(cuda.Options{})
	_, list := cuda.List("")
	_, versions := cuda.LibraryVersions("")
	_, compiler := cuda.OpenCompiler("", "")
	for what, err := range map[string]error{"OpenCompiler": compiler, "Open": open, "List": list, "LibraryVersions": versions} {
		if !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "CGO_ENABLED=1") {
			t.Errorf("%s: got %v, want an error that wraps %q and names CGO_ENABLED=1", what, err, device.ErrUnavailable)
		}
	}
}

func builtLibrary() string { return os.Getenv("MILLRACE_KERNELS") }
