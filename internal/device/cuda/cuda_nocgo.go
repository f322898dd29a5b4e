//go:build !cgo

package cuda

import "millrace/internal/device"

func withoutCgo(op string) error {
	return device.Errorf(op, "", device.ErrUnavailable,
		"this binary was built without cgo: build with CGO_ENABLED=1 to use a GPU, or use the host device")
}

// AskConnections does nothing without cgo.
func AskConnections(int) error { return nil }

// Open opens a GPU. Without cgo it fails with device.ErrUnavailable.
func Open(Options) (device.Device, error) { return nil, withoutCgo("open") }

// List describes the GPUs that are visible to the process. Without cgo it fails with device.ErrUnavailable.
func List(string) ([]device.Info, error) { return nil, withoutCgo("list devices") }

// Compiler compiles operators for GPUs. Without cgo it can't be opened.
type Compiler struct{}

// OpenCompiler opens NVRTC. Without cgo it fails with device.ErrUnavailable.
func OpenCompiler(string, string) (*Compiler, error) { return nil, withoutCgo("open compiler") }

// Version returns an empty string without cgo.
func (*Compiler) Version() string { return "" }

// Compile fails with device.ErrUnavailable without cgo.
func (*Compiler) Compile(Source) (image []byte, warnings string, err error) {
	return nil, "", withoutCgo("compile")
}

// LibraryVersions describes the kernel library. Without cgo it fails with device.ErrUnavailable.
func LibraryVersions(string) (Versions, error) {
	return Versions{}, withoutCgo("read library versions")
}
