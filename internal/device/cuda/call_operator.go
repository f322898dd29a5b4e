//go:build cgo

package cuda

// This file has one Go method per C call that loads or compiles an operator. Like call.go, it only converts types.

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import "unsafe"

// compilerHandle is a handle for NVRTC.
type compilerHandle = *C.millrace_compiler

// operatorLoad loads an image. It returns the operator and copies of its name and description.
func (l *library) operatorLoad(d deviceHandle, image []byte) (op operatorHandle, name string, description []byte, err error) {
	e := newError()
	start := unsafe.Pointer(unsafe.SliceData(image))
	if err := failed("load operator", C.mr_operator_load(l.api, d, start, C.size_t(len(image)), &op, &e), &e); err != nil {
		return nil, "", nil, err
	}
	return op, C.GoString(op.name), l.describe(op), nil
}

// libraryOpen opens a library with an operator. It returns the same results as operatorLoad.
func (l *library) libraryOpen(d deviceHandle, path string) (op operatorHandle, name string, description []byte, err error) {
	e := newError()
	file := C.CString(path)
	defer C.free(unsafe.Pointer(file))
	if err := failed("load library", C.mr_library_open(l.api, d, file, &op, &e), &e); err != nil {
		return nil, "", nil, err
	}
	return op, C.GoString(op.name), l.describe(op), nil
}

// describe returns a copy of the operator's description, or nil if there is none.
func (l *library) describe(op operatorHandle) []byte {
	if op.description == nil {
		return nil
	}
	return C.GoBytes(op.description, C.int(C.mr_description_bytes(op)))
}

func (l *library) operatorUnload(op operatorHandle) error {
	e := newError()
	return failed(opUnload, C.mr_operator_unload(l.api, op, &e), &e)
}

// opCompile is the name of the call that compiles.
const opCompile = "compile"

// compilerOpen opens NVRTC. With an empty path, it searches for NVRTC.
func (l *library) compilerOpen(path string) (c compilerHandle, version int, err error) {
	e := newError()
	var file *C.char
	if path != "" {
		file = C.CString(path)
		defer C.free(unsafe.Pointer(file))
	}
	if err := failed("open compiler", C.mr_compiler_open(l.api, file, &c, &e), &e); err != nil {
		return nil, 0, err
	}
	return c, int(c.version), nil
}

// compile returns a cubin and the compiler's log. The slices headers and texts hold the headers' paths and contents. The cubin is nil if
// the source has errors.
func (l *library) compile(c compilerHandle, s *Source, compute int, headers, texts []string) (image []byte, log string, err error) {
	e := newError()
	var memory cStrings
	defer memory.free()
	source := C.millrace_source{
		size: C.sizeof_millrace_source, compute: C.uint32_t(compute), name: memory.add(s.Name), text: memory.add(s.Text),
		headers: C.uint32_t(len(headers)), header_names: memory.list(headers), header_texts: memory.list(texts),
		option_count: C.uint32_t(len(s.Options)), options: memory.list(s.Options),
	}
	var compiled *C.millrace_compiled
	if err := failed(opCompile, C.mr_compile(l.api, c, &source, &compiled, &e), &e); err != nil {
		return nil, "", err
	}
	defer C.mr_compiled_free(l.api, compiled)
	if compiled.image != nil {
		image = C.GoBytes(compiled.image, C.int(compiled.bytes))
	}
	return image, C.GoString(compiled.log), nil
}

// cStrings holds strings in C memory.
type cStrings []unsafe.Pointer

// add returns a copy of text in C memory.
func (m *cStrings) add(text string) *C.char {
	c := C.CString(text)
	*m = append(*m, unsafe.Pointer(c))
	return c
}

// list returns an array with copies of texts in C memory.
func (m *cStrings) list(texts []string) **C.char {
	array := (**C.char)(C.calloc(C.size_t(len(texts)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	*m = append(*m, unsafe.Pointer(array))
	for i, text := range texts {
		unsafe.Slice(array, len(texts))[i] = m.add(text)
	}
	return array
}

func (m *cStrings) free() {
	for _, p := range *m {
		C.free(p)
	}
}
