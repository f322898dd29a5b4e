//go:build cgo

package cpulib

// The directives tell cgo that the functions keep no pointers and don't call back into Go.

/*
#cgo CFLAGS: -I${SRCDIR}/../../../kernels/include
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "bridge.h"

#cgo noescape mr_cpu_run
#cgo nocallback mr_cpu_run
*/
import "C"

import (
	"errors"
	"unsafe"
)

// code is the function of a library that computes records.
type code struct{ run C.mr_cpu_run_function }

// load opens the library at path. The library's initializers run, so it's the moment from which its code is trusted.
func load(path string) (code, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	run := C.mr_cpu_open(name, &message[0], C.size_t(len(message)))
	if run == nil {
		return code{}, errors.New(C.GoString(&message[0]))
	}
	return code{run}, nil
}

// call computes the records from first up to, but not including, end.
func (c code) call(b *batch, first, end int) {
	C.mr_cpu_run(c.run, C.uint32_t(len(b.offsets)-1), C.uint32_t(len(b.rows)), C.uint32_t(b.stride), (*C.uint8_t)(unsafe.SliceData(b.rows)),
		(*C.uint32_t)(unsafe.SliceData(b.offsets)), (*C.uint8_t)(unsafe.SliceData(b.records)), (*C.uint8_t)(unsafe.SliceData(b.statuses)),
		(*C.uint8_t)(unsafe.SliceData(b.strings)), (*C.uint8_t)(unsafe.SliceData(b.block)), C.uint32_t(first), C.uint32_t(end))
}
