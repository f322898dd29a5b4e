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

// NearDuplicates is an index of near-duplicates in a GPU's memory.
type NearDuplicates struct{}

// NewNearDuplicates creates an index. Without cgo it fails with device.ErrUnavailable.
func NewNearDuplicates(device.Device, device.Stream, NearDuplicateParameters) (*NearDuplicates, error) {
	return nil, withoutCgo("new index")
}

// Apply fails without cgo.
func (*NearDuplicates) Apply(NearDuplicateBatch) error { return withoutCgo("apply") }

// Undo fails without cgo.
func (*NearDuplicates) Undo() error { return withoutCgo("undo") }

// Replay fails without cgo.
func (*NearDuplicates) Replay(NearDuplicateRows) error { return withoutCgo("replay") }

// Bytes returns 0 without cgo.
func (*NearDuplicates) Bytes() int64 { return 0 }

// Close does nothing without cgo.
func (*NearDuplicates) Close() error { return nil }
