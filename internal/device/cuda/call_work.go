//go:build cgo

package cuda

// The calls that make a batch, and pools and operators. See call.go for the directives.

// #include "bridge.h"
import "C"

import (
	"unsafe"

	"millrace/internal/device"
)

func (l *library) poolCreate(d deviceHandle, limit, threshold int64) (poolHandle, error) {
	var e C.millrace_error
	var p poolHandle
	err := failed("new pool", C.mr_pool_create(l.api, d, C.uint64_t(limit), C.uint64_t(threshold), &p, &e), &e)
	return p, err
}

func (l *library) poolDestroy(p poolHandle) error {
	var e C.millrace_error
	return failed("close pool", C.mr_pool_destroy(l.api, p, &e), &e)
}

func (l *library) poolAlloc(p poolHandle, s streamHandle, bytes int) (uint64, error) {
	var e C.millrace_error
	var m C.uint64_t
	err := failed("pool alloc", C.mr_pool_alloc(l.api, p, s, C.uint64_t(bytes), &m, &e), &e)
	return uint64(m), err
}

func (l *library) poolFree(p poolHandle, s streamHandle, address uint64) error {
	var e C.millrace_error
	return failed("pool free", C.mr_pool_free(l.api, p, s, C.uint64_t(address), &e), &e)
}

func (l *library) poolTrim(p poolHandle, keep int64) error {
	var e C.millrace_error
	return failed("trim pool", C.mr_pool_trim(l.api, p, C.uint64_t(keep), &e), &e)
}

func (l *library) poolSetThreshold(p poolHandle, bytes int64) error {
	var e C.millrace_error
	return failed("set release threshold", C.mr_pool_set_threshold(l.api, p, C.uint64_t(bytes), &e), &e)
}

func (l *library) poolStats(p poolHandle) (device.PoolStats, error) {
	var e C.millrace_error
	var s C.millrace_pool_stats
	err := failed("pool stats", C.mr_pool_stats(l.api, p, &s, &e), &e)
	return device.PoolStats{
		Used: int64(s.used), Reserved: int64(s.reserved),
		UsedHigh: int64(s.used_high), ReservedHigh: int64(s.reserved_high),
	}, err
}

func (l *library) copyIn(s streamHandle, to uint64, from unsafe.Pointer, bytes int) error {
	var e C.millrace_error
	return failed("copy in", C.mr_copy_in(l.api, s, C.uint64_t(to), from, C.uint64_t(bytes), &e), &e)
}

func (l *library) copyOut(s streamHandle, to unsafe.Pointer, from uint64, bytes int) error {
	var e C.millrace_error
	return failed("copy out", C.mr_copy_out(l.api, s, to, C.uint64_t(from), C.uint64_t(bytes), &e), &e)
}

func (l *library) fill(s streamHandle, to uint64, value byte, bytes int) error {
	var e C.millrace_error
	return failed("fill", C.mr_fill(l.api, s, C.uint64_t(to), C.uint8_t(value), C.uint64_t(bytes), &e), &e)
}

// findOperator returns nil if the library has no operator of that name.
func (l *library) findOperator(name string) operatorHandle {
	return C.mr_find_operator(l.api, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)))
}

func (l *library) create(op operatorHandle, ordinal int, params []byte) (unsafe.Pointer, error) {
	var e C.millrace_error
	var instance unsafe.Pointer
	block := unsafe.Pointer(unsafe.SliceData(params))
	err := failed("kernel", C.mr_create(op, C.int32_t(ordinal), block, C.size_t(len(params)), &instance, &e), &e)
	return instance, err
}

func (l *library) destroy(op operatorHandle, instance unsafe.Pointer) error {
	var e C.millrace_error
	return failed("close kernel", C.mr_destroy(op, instance, &e), &e)
}

func cShape(shape device.Shape) C.millrace_shape {
	return C.millrace_shape{
		rows: C.uint64_t(shape.Rows), bytes: C.uint64_t(shape.Bytes), longest: C.uint64_t(shape.Longest),
	}
}

func (l *library) needs(op operatorHandle, instance unsafe.Pointer, shape device.Shape) (device.Needs, error) {
	var e C.millrace_error
	var n C.millrace_needs
	s := cShape(shape)
	err := failed("needs", C.mr_needs(op, instance, &s, &n, &e), &e)
	return device.Needs{Scratch: int(n.scratch), Result: int(n.result)}, err
}

func (l *library) launch(s streamHandle, op operatorHandle, instance unsafe.Pointer, a device.LaunchArgs) error {
	var e C.millrace_error
	args := C.millrace_launch{
		shape: cShape(a.Shape), batch: C.uint64_t(a.Rows.Addr), offsets: C.uint64_t(a.Offsets.Addr),
		scratch: C.uint64_t(a.Scratch.Addr), result: C.uint64_t(a.Result.Addr),
	}
	return failed("launch", C.mr_launch(l.api, s, op, instance, &args, &e), &e)
}

func (l *library) notify(s streamHandle, token uint64) error {
	var e C.millrace_error
	return failed("notify", C.mr_notify(l.api, s, C.uint64_t(token), &e), &e)
}

func (l *library) completionFD(d deviceHandle) int { return int(C.mr_completion_fd(l.api, d)) }

// completionDrain fills tokens as far as there are any, and says how many it wrote.
func (l *library) completionDrain(d deviceHandle, tokens []uint64) int {
	first := (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(tokens)))
	return int(C.mr_completion_drain(l.api, d, first, C.uint32_t(len(tokens))))
}

func (l *library) gateEnqueue(s streamHandle) (ticket uint64, err error) {
	var e C.millrace_error
	var t C.uint64_t
	err = failed("gate", C.mr_gate_enqueue(l.api, s, &t, &e), &e)
	return uint64(t), err
}

func (l *library) gateOpen(d deviceHandle, ticket uint64) {
	C.mr_gate_open(l.api, d, C.uint64_t(ticket))
}

func (l *library) rangeStart(name string) uint64 {
	return uint64(C.mr_range_start(l.api, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name))))
}

func (l *library) rangeEnd(id uint64) { C.mr_range_end(l.api, C.uint64_t(id)) }
