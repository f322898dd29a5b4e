// Package cuda drives NVIDIA GPUs. It opens the kernel library libmillrace.so at run time and calls it through the C
// ABI of kernels/include/millrace.h. It is one of two packages of Millrace that import "C"; the other is internal/operator/cpulib.
//
// The Go binary needs no CUDA to build or to start. Without the library, the driver or a GPU, Open fails with
// device.ErrUnavailable. In a binary built without cgo, every function does.
//
// The worker and the benchmarks open their GPUs with it. Start reading with device.go, then call.go for the calls into
// C.
package cuda

import (
	"io/fs"
	"time"
)

// Options selects the GPU and the library.
type Options struct {
	// Library is the path of libmillrace.so, usually the value of MILLRACE_KERNELS. If it is empty, Open looks for
	// libmillrace.so beside the executable and then on the system's search path. If it is set, Open tries nothing else.
	Library string

	// Ordinal is the GPU's index among those visible to the process.
	Ordinal int

	// ClosePatience bounds how long closing the device or one of its objects waits for work that doesn't end; 0 means
	// 10 s. After that the device counts as lost.
	ClosePatience time.Duration
}

// OpenLibrary is the Op of a device.Error about the kernel library itself. It is device.ErrUnavailable if there is none.
const OpenLibrary = "open kernel library"

// Versions describes a kernel library.
type Versions struct {
	Library string // path by which it was opened
	ABI     uint32 // its ABI version
	Runtime string // CUDA runtime that it was built with, for example "12.4"
	Driver  string // newest CUDA version that the driver supports; empty if there is no driver
}

// Source is the source file of an operator.
type Source struct {
	Name    string   // of the file, for the compiler's messages
	Text    string   // must not contain a zero byte
	Headers fs.FS    // the files that it may include, by their paths
	Compute string   // compute capability of the GPU, for example "9.0"
	Options []string // for the compiler, such as "-DNAME=VALUE"
}

// CompileError is the error for a source file that doesn't compile.
type CompileError struct {
	Name string
	Log  string // what the compiler wrote, with file, line and caret
}

// Error returns what the compiler wrote.
func (c *CompileError) Error() string { return c.Name + " doesn't compile:\n" + c.Log }
