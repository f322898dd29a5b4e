// Package cuda drives NVIDIA GPUs. It opens the kernel library libmillrace.so at run time and calls it through the C ABI of
// kernels/include/millrace.h.
//
// The Go binary builds and starts without CUDA. Without the library, the driver or a GPU, Open fails with
// device.ErrUnavailable. In a binary without cgo, all functions that need the library also fail with
// device.ErrUnavailable.
//
// The worker and the benchmarks open their GPUs with this package. Start reading with device.go, then call.go for the
// calls into C.
package cuda

import (
	"io/fs"
	"time"
)

// Options selects the GPU and the library.
type Options struct {
	// Library is the path of libmillrace.so, usually the value of MILLRACE_KERNELS. If it is empty, Open looks for
	// libmillrace.so beside the executable and then on the system's search path. If it is set, Open tries no other
	// path.
	Library string

	// Ordinal is the GPU's index among the GPUs that are visible to the process.
	Ordinal int

	// ClosePatience limits the wait for unfinished work when the device or one of its objects is closed. After that
	// time the device is considered lost. 0 means 10 s.
	ClosePatience time.Duration
}

// OpenLibrary is the Op of a device.Error about the kernel library itself. The error is device.ErrUnavailable if there
// is no library.
const OpenLibrary = "open kernel library"

// Versions describes a kernel library.
type Versions struct {
	Library string // path by which the library was opened
	ABI     uint32 // ABI version of the library
	Runtime string // CUDA runtime that the library was built with, for example "12.4"
	Driver  string // newest CUDA version that the driver supports; empty if there is no driver
}

// Source is the source file of an operator.
type Source struct {
	Name    string   // name of the file, for the compiler's messages
	Text    string   // contents, without a zero byte
	Headers fs.FS    // files that the source may include, by their paths
	Compute string   // compute capability of the GPU, for example "9.0"
	Options []string // compiler options, such as "-DNAME=VALUE"
}

// CompileError is the error for a source file that doesn't compile.
type CompileError struct {
	Name string
	Log  string // the compiler's output, with file, line and caret
}

// Error returns the name of the source file and the compiler's output.
func (c *CompileError) Error() string { return c.Name + " doesn't compile:\n" + c.Log }
