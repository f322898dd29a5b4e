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
#cgo noescape mr_cpu_pass
#cgo nocallback mr_cpu_pass
*/
import "C"

import (
	"errors"
	"unsafe"
)

// code holds the functions of a library: the function that computes records, and one function for each pass.
type code struct {
	run    unsafe.Pointer
	passes []unsafe.Pointer
}

// load opens the library at path and looks up runSymbol and the symbols in passes. It runs the library's initializers, so the caller
// must trust the library.
func load(path string, passes []string) (code, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	library := C.mr_cpu_open(name, &message[0], C.size_t(len(message)))
	if library == nil {
		return code{}, errors.New(C.GoString(&message[0]))
	}
	var c code
	for _, symbol := range append([]string{runSymbol}, passes...) {
		function, err := find(library, symbol)
		if err != nil {
			return code{}, err
		}
		c.passes = append(c.passes, function)
	}
	c.run, c.passes = c.passes[0], c.passes[1:]
	return c, nil
}

// find returns a function of an open library.
func find(library unsafe.Pointer, symbol string) (unsafe.Pointer, error) {
	name := C.CString(symbol)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	function := C.mr_cpu_find(library, name, &message[0], C.size_t(len(message)))
	if function == nil {
		return nil, errors.New(C.GoString(&message[0]))
	}
	return function, nil
}

// call computes records first to end-1.
func (c code) call(b *batch, first, end int) {
	C.mr_cpu_run(c.run, b.sizes(), bytesOf(b.rows), (*C.uint32_t)(unsafe.SliceData(b.offsets)), bytesOf(b.records), bytesOf(b.statuses),
		bytesOf(b.strings), bytesOf(b.scratch), bytesOf(b.tables), bytesOf(b.block), C.uint32_t(first), C.uint32_t(end))
}

// callPass runs blocks first to end-1 of a pass. blocks is the number of blocks of the whole pass.
func (c code) callPass(pass int, b *batch, blocks, first, end int) {
	C.mr_cpu_pass(c.passes[pass], b.sizes(), bytesOf(b.rows), (*C.uint32_t)(unsafe.SliceData(b.offsets)), bytesOf(b.scratch),
		bytesOf(b.tables), bytesOf(b.block), C.uint32_t(blocks), C.uint32_t(first), C.uint32_t(end))
}

func (b *batch) sizes() C.mr_cpu_batch {
	return C.mr_cpu_batch{rows: C.uint32_t(len(b.offsets) - 1), bytes: C.uint32_t(len(b.rows)), stride: C.uint32_t(b.stride)}
}

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }
