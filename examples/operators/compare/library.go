package main

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -I${SRCDIR}/../../../kernels/include
// #cgo LDFLAGS: -static
// #include "library.h"
// static void call(void (*run)(const batch *, uint32_t, uint32_t), const uint8_t *data, const uint32_t *offsets, uint8_t *result,
//                  uint8_t *status, uint8_t *strings, uint32_t rows, uint32_t bytes, uint32_t stride, uint32_t first, uint32_t end) {
//     batch b = {data, offsets, result, status, strings, rows, bytes, stride};
//     run(&b, first, end);
// }
// typedef void (*own)(const batch *, uint32_t, uint32_t);
// static own own_at(int i) {
//     own all[] = {own_entropy, own_blake3, own_simhash, own_redact};
//     return all[i];
// }
// static void each(int i, const void *automaton, const uint8_t *data, const uint32_t *offsets, uint64_t *out, uint32_t first, uint32_t end) {
//     switch (i) {
//     case 0: fast_entropy(data, offsets, out, first, end); break;
//     case 1: fast_simhash(data, offsets, out, first, end); break;
//     case 2: fast_keywords(automaton, data, offsets, out, first, end); break;
//     }
// }
import "C"

import (
	"encoding/binary"
	"sync"
	"unsafe"
)

// library is the index of an operator's own CPU code in own_at.
type library int

const (
	ownEntropy library = iota
	ownBlake3
	ownSimhash
	ownRedact
)

// room is memory for the results of a corpus.
type room struct {
	result, status, strings []byte
}

// implementation returns the operator's own code as an implementation. A record of the result has stride bytes, and at most perByte bytes
// of byte strings per byte of the input record.
func (l library) implementation(operator string, stride, perByte int) implementation {
	var mutex sync.Mutex
	rooms := map[*records]*room{}
	roomOf := func(c *records) *room {
		mutex.Lock()
		defer mutex.Unlock()
		if rooms[c] == nil {
			clear(rooms) // an earlier corpus isn't used again
			rooms[c] = &room{make([]byte, stride*c.rows()), make([]byte, c.rows()), make([]byte, perByte*len(c.data)+1)}
		}
		return rooms[c]
	}
	return implementation{operator, "operator's code, C++", func(c *records, out []uint64, first, end int) {
		r := roomOf(c)
		C.call(C.own_at(C.int(l)), bytesOf(c.data), offsetsOf(c), bytesOf(r.result), bytesOf(r.status), bytesOf(r.strings),
			C.uint32_t(c.rows()), C.uint32_t(len(c.data)), C.uint32_t(stride), C.uint32_t(first), C.uint32_t(end))
		for i := first; i < end; i++ {
			record := r.result[i*stride : (i+1)*stride]
			if stride >= 8 && perByte == 0 {
				out[i] = binary.LittleEndian.Uint64(record)
			} else {
				out[i] = uint64(binary.LittleEndian.Uint32(record))
			}
		}
	}}
}

// fast is the number of a C++ implementation in the function each.
type fast int

const (
	fastEntropy fast = iota
	fastSimhash
	fastKeywords
)

func (f fast) implementation(operator, name string, automaton unsafe.Pointer) implementation {
	return implementation{operator, name, func(c *records, out []uint64, first, end int) {
		C.each(C.int(f), automaton, bytesOf(c.data), offsetsOf(c), (*C.uint64_t)(unsafe.SliceData(out)), C.uint32_t(first), C.uint32_t(end))
	}}
}

func automatonOf(words []string) unsafe.Pointer {
	var text []byte
	var sizes []uint32
	for _, w := range words {
		text = append(text, w...)
		sizes = append(sizes, uint32(len(w)))
	}
	return C.make_automaton(bytesOf(text), (*C.uint32_t)(unsafe.SliceData(sizes)), C.uint32_t(len(sizes)))
}

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

func offsetsOf(c *records) *C.uint32_t { return (*C.uint32_t)(unsafe.SliceData(c.offsets)) }
