// Package cuda is the device that drives an NVIDIA GPU. It opens the kernel library libmillrace.so at run
// time and calls it through the C ABI of kernels/include/millrace.h; no other package of Millrace imports "C".
//
// The Go binary needs no CUDA to build or to start. Without the library, the driver or a GPU, Open fails with
// device.ErrUnavailable; so does everything here in a binary built without cgo.
package cuda

import "time"

// Options says which GPU to open and with which library.
type Options struct {
	// Library is the path of libmillrace.so, usually the value of MILLRACE_KERNELS. If it is empty,
	// libmillrace.so is looked for beside the executable and then on the system's search path. If it is not,
	// nothing else is tried: who names a library wants that one.
	Library string

	// Ordinal is the GPU's index among those that the process can see.
	Ordinal int

	// UUID, if not empty, selects the GPU ("GPU-xxxxxxxx-...") in place of Ordinal.
	UUID string

	// Completions is how many Notify calls may be outstanding at once; 0 means 65,536.
	Completions int

	// ClosePatience bounds how long closing the device, or something of it, waits for work that does not end; 0 means
	// 10 s. Then the device counts as lost.
	ClosePatience time.Duration
}

// Versions says what a kernel library is.
type Versions struct {
	Library string // the path it was opened by
	ABI     uint32 // the ABI version it speaks
	Runtime string // the CUDA runtime it is built with, e.g. "12.4"
	Driver  string // the newest CUDA version that the driver supports; empty where there is no driver
}
