//go:build cgo

package cuda

// This file has one Go method per C call, except for calls of loaded operators (see call_operator.go). It only converts
// arguments to C types and statuses to errors.
//
// The directives declare that the functions keep no pointers and don't call back into Go. Completions reach Go through
// a file descriptor instead. Therefore arguments such as the error buffer stay on the stack, and no call allocates.

/*
#cgo CFLAGS: -I${SRCDIR}/../../../kernels/include
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "bridge.h"

#cgo noescape mr_stream_synchronize
#cgo nocallback mr_stream_synchronize
#cgo noescape mr_event_record
#cgo nocallback mr_event_record
#cgo noescape mr_event_query
#cgo nocallback mr_event_query
#cgo noescape mr_event_synchronize
#cgo nocallback mr_event_synchronize
#cgo noescape mr_event_elapsed
#cgo nocallback mr_event_elapsed
#cgo noescape mr_pool_alloc
#cgo nocallback mr_pool_alloc
#cgo noescape mr_pool_free
#cgo nocallback mr_pool_free
#cgo noescape mr_pool_stats
#cgo nocallback mr_pool_stats
#cgo noescape mr_needs
#cgo nocallback mr_needs
#cgo noescape mr_enqueue
#cgo nocallback mr_enqueue
#cgo noescape mr_completion_drain
#cgo nocallback mr_completion_drain
#cgo noescape mr_device_check
#cgo nocallback mr_device_check
#cgo noescape mr_range_start
#cgo nocallback mr_range_start
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"millrace/internal/device"
)

// Handles for the library's objects.
type (
	deviceHandle   = *C.millrace_device
	streamHandle   = *C.millrace_stream
	eventHandle    = *C.millrace_event
	poolHandle     = *C.millrace_pool
	operatorHandle = *C.millrace_operator
)

// library is an opened kernel library.
type library struct {
	path string
	abi  uint32
	api  *C.millrace_api
}

// The outcomes of opening a library, with the values of bridge.h.
const (
	loaded    = C.mr_loaded
	notOpened = C.mr_not_opened
	noSymbols = C.mr_no_symbols
	tooOld    = C.mr_too_old
	tooNew    = C.mr_too_new
)

// The ABI version of this package, and the lowest library version that this package accepts.
const (
	ownABI = uint32(C.MILLRACE_ABI_VERSION)
	minABI = uint32(C.MILLRACE_ABI_LEAST)
)

// loadLibrary opens the library at path. It looks up a path without a slash on the system's search path. minimum is the
// lowest ABI version that the library accepts from a program. reason is the dynamic linker's message.
func loadLibrary(path string) (l *library, outcome int, minimum uint32, reason string) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var api *C.millrace_api
	var version, program C.uint32_t
	var message [512]C.char
	outcome = int(C.mr_load(name, &api, &version, &program, &message[0], C.size_t(len(message))))
	return &library{path: path, abi: uint32(version), api: api}, outcome, uint32(program), text(message[:])
}

// newError returns a buffer for the error of a call.
func newError() C.millrace_error { return C.millrace_error{size: C.sizeof_millrace_error} }

// kinds maps the statuses of the ABI to the kinds of error in package device.
var kinds = map[C.int32_t]error{
	C.MILLRACE_NOT_READY:     device.ErrNotReady,
	C.MILLRACE_OUT_OF_MEMORY: device.ErrOutOfMemory,
	C.MILLRACE_LAUNCH:        device.ErrLaunch,
	C.MILLRACE_INVALID:       device.ErrInvalid,
	C.MILLRACE_LOST:          device.ErrLost,
	C.MILLRACE_UNAVAILABLE:   device.ErrUnavailable,
	C.MILLRACE_NOT_FOUND:     device.ErrNotFound,
}

// failed returns nil for MILLRACE_OK and the library's error otherwise. op is the name of the call.
func failed(op string, status C.int32_t, e *C.millrace_error) error {
	if status == C.MILLRACE_OK {
		return nil
	}
	kind, ok := kinds[status]
	if !ok {
		kind = device.ErrLost // this ABI version doesn't define the status, so nothing can be trusted
	}
	if errors.Is(kind, device.ErrLost) && kernelFaults[int(e.code)] {
		kind = device.ErrKernelFault
	}
	return &device.Error{Op: op, Kind: kind, Code: int(e.code), Detail: text(e.message[:])}
}

// made makes a call that returns a value, and converts its status.
func made[T any](op string, call func(v *T, e *C.millrace_error) C.int32_t) (v T, err error) {
	e := newError()
	err = failed(op, call(&v, &e), &e)
	return v, err
}

// text converts a zero-terminated string. With C.GoString, the argument would escape to the heap.
func text(chars []C.char) string {
	b := make([]byte, 0, len(chars))
	for _, c := range chars {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

func (l *library) versions() (runtime, driver int, err error) {
	e := newError()
	var r, d C.int32_t
	err = failed("read versions", C.mr_versions(l.api, &r, &d, &e), &e)
	return int(r), int(d), err
}

func (l *library) deviceCount() (int, error) {
	n, err := made("count devices", func(n *C.int32_t, e *C.millrace_error) C.int32_t { return C.mr_device_count(l.api, n, e) })
	return int(n), err
}

func (l *library) deviceInfo(ordinal int) (device.Info, error) {
	e := newError()
	i := C.millrace_device_info{size: C.sizeof_millrace_device_info}
	if err := failed("describe device", C.mr_device_info(l.api, C.int32_t(ordinal), &i, &e), &e); err != nil {
		return device.Info{}, err
	}
	return device.Info{
		Kind: "cuda", ID: text(i.uuid[:]), Name: text(i.name[:]), Ordinal: ordinal, Memory: int64(i.memory),
		Compute: fmt.Sprintf("%d.%d", i.compute_major, i.compute_minor),
		Driver:  versionText(int(i.driver_version)), Runtime: versionText(int(i.runtime_version)),
		Units: int(i.multiprocessors), NUMANode: nodeOf(sysfs, text(i.pci[:])),
	}, nil
}

func (l *library) deviceOpen(ordinal, completions int) (deviceHandle, error) {
	return made("open", func(d *deviceHandle, e *C.millrace_error) C.int32_t {
		return C.mr_device_open(l.api, C.int32_t(ordinal), C.uint32_t(completions), d, e)
	})
}

func (l *library) deviceClose(d deviceHandle) error {
	e := newError()
	return failed("close", C.mr_device_close(l.api, d, &e), &e)
}

// deviceCheck polls the device's probe without waiting. It returns false if the device has not answered yet.
func (l *library) deviceCheck(d deviceHandle) (answered bool, err error) {
	e := newError()
	status := C.mr_device_check(l.api, d, &e)
	if status == C.MILLRACE_NOT_READY {
		return false, nil
	}
	return status == C.MILLRACE_OK, failed("check device", status, &e)
}

func (l *library) streamCreate(d deviceHandle) (streamHandle, error) {
	return made("new stream", func(s *streamHandle, e *C.millrace_error) C.int32_t { return C.mr_stream_create(l.api, d, s, e) })
}

func (l *library) streamDefault(d deviceHandle, perThread bool) (streamHandle, error) {
	kind := C.int32_t(C.MILLRACE_LEGACY_DEFAULT)
	if perThread {
		kind = C.MILLRACE_PER_THREAD_DEFAULT
	}
	return made("default stream", func(s *streamHandle, e *C.millrace_error) C.int32_t { return C.mr_stream_default(l.api, d, kind, s, e) })
}

// These declarations fail to compile if a constant that is passed to C unchanged has another value in C.
var (
	_ [0]struct{} = [int(device.Timed) - C.MILLRACE_EVENT_TIMED]struct{}{}
	_ [0]struct{} = [int(device.BlockingSync) - C.MILLRACE_EVENT_BLOCKING]struct{}{}
	_ [0]struct{} = [int(device.DoCopyIn) - C.mr_copy_in]struct{}{}
	_ [0]struct{} = [int(device.DoNotify) - C.mr_notify]struct{}{}
)

func (l *library) streamDestroy(s streamHandle) error {
	e := newError()
	return failed("close stream", C.mr_stream_destroy(l.api, s, &e), &e)
}

func (l *library) streamSynchronize(s streamHandle) error {
	e := newError()
	return failed("synchronize", C.mr_stream_synchronize(l.api, s, &e), &e)
}

func (l *library) eventCreate(d deviceHandle, flags device.EventFlags) (eventHandle, error) {
	return made("new event", func(v *eventHandle, e *C.millrace_error) C.int32_t {
		return C.mr_event_create(l.api, d, C.int32_t(flags), v, e)
	})
}

func (l *library) eventDestroy(v eventHandle) error {
	e := newError()
	return failed("close event", C.mr_event_destroy(l.api, v, &e), &e)
}

func (l *library) eventRecord(v eventHandle, s streamHandle) error {
	e := newError()
	return failed("record", C.mr_event_record(l.api, v, s, &e), &e)
}

// eventReached reports whether the device has reached the event. A pending event is not an error.
func (l *library) eventReached(v eventHandle) (bool, error) {
	e := newError()
	status := C.mr_event_query(l.api, v, &e)
	if status == C.MILLRACE_NOT_READY {
		return false, nil
	}
	return status == C.MILLRACE_OK, failed("query event", status, &e)
}

func (l *library) eventSynchronize(v eventHandle) error {
	e := newError()
	return failed("await event", C.mr_event_synchronize(l.api, v, &e), &e)
}

func (l *library) eventElapsed(from, to eventHandle) (milliseconds float32, err error) {
	e := newError()
	var ms C.float
	err = failed("event time", C.mr_event_elapsed(l.api, from, to, &ms, &e), &e)
	return float32(ms), err
}

func (l *library) hostAlloc(d deviceHandle, bytes int) (unsafe.Pointer, error) {
	return made("alloc host", func(m *unsafe.Pointer, e *C.millrace_error) C.int32_t {
		return C.mr_host_alloc(l.api, d, C.uint64_t(bytes), m, e)
	})
}

func (l *library) hostFree(d deviceHandle, m unsafe.Pointer) error {
	e := newError()
	return failed("free host", C.mr_host_free(l.api, d, m, &e), &e)
}

func (l *library) deviceAlloc(d deviceHandle, bytes int) (uint64, error) {
	m, err := made("alloc", func(m *C.uint64_t, e *C.millrace_error) C.int32_t {
		return C.mr_device_alloc(l.api, d, C.uint64_t(bytes), m, e)
	})
	return uint64(m), err
}

func (l *library) deviceFree(d deviceHandle, address uint64) error {
	e := newError()
	return failed("free", C.mr_device_free(l.api, d, C.uint64_t(address), &e), &e)
}

func (l *library) poolCreate(d deviceHandle, limit, threshold int64) (poolHandle, error) {
	return made("new pool", func(p *poolHandle, e *C.millrace_error) C.int32_t {
		return C.mr_pool_create(l.api, d, C.uint64_t(limit), C.uint64_t(threshold), p, e)
	})
}

func (l *library) poolDestroy(p poolHandle) error {
	e := newError()
	return failed("close pool", C.mr_pool_destroy(l.api, p, &e), &e)
}

func (l *library) poolAlloc(p poolHandle, s streamHandle, bytes int) (uint64, error) {
	e := newError()
	var m C.uint64_t
	err := failed("pool alloc", C.mr_pool_alloc(l.api, p, s, C.uint64_t(bytes), &m, &e), &e)
	return uint64(m), err
}

func (l *library) poolFree(p poolHandle, s streamHandle, address uint64) error {
	e := newError()
	return failed("pool free", C.mr_pool_free(l.api, p, s, C.uint64_t(address), &e), &e)
}

func (l *library) poolTrim(p poolHandle, keep int64) error {
	e := newError()
	return failed("trim pool", C.mr_pool_trim(l.api, p, C.uint64_t(keep), &e), &e)
}

func (l *library) poolStats(p poolHandle) (device.PoolStats, error) {
	e := newError()
	s := C.millrace_pool_stats{size: C.sizeof_millrace_pool_stats}
	err := failed("pool stats", C.mr_pool_stats(l.api, p, &s, &e), &e)
	return device.PoolStats{
		Used: int64(s.used), Reserved: int64(s.reserved),
		UsedHigh: int64(s.used_high), ReservedHigh: int64(s.reserved_high),
	}, err
}

// findOperator returns the library's operator with the given name, or nil.
func (l *library) findOperator(name string) operatorHandle {
	return C.mr_find_operator(l.api, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)))
}

func (l *library) create(op operatorHandle, ordinal int, params []byte) (unsafe.Pointer, error) {
	block := unsafe.Pointer(unsafe.SliceData(params))
	return made("kernel", func(instance *unsafe.Pointer, e *C.millrace_error) C.int32_t {
		return C.mr_create(op, C.int32_t(ordinal), block, C.size_t(len(params)), instance, e)
	})
}

func (l *library) destroy(op operatorHandle, instance unsafe.Pointer) error {
	e := newError()
	return failed("close kernel", C.mr_destroy(op, instance, &e), &e)
}

func (l *library) needs(op operatorHandle, instance unsafe.Pointer, shape device.Shape) (device.Needs, error) {
	e := newError()
	n := C.millrace_needs{size: C.sizeof_millrace_needs}
	s := C.millrace_shape{
		size: C.sizeof_millrace_shape, rows: C.uint64_t(shape.Rows), bytes: C.uint64_t(shape.Bytes), longest: C.uint64_t(shape.Longest),
	}
	err := failed("needs", C.mr_needs(op, instance, &s, &n, &e), &e)
	return device.Needs{Scratch: int(n.scratch), Result: int(n.result), InPlace: n.in_place != 0}, err
}

// commands is a list of calls that enqueue work, as C values. It holds no Go pointers.
type commands struct {
	list [maxCommands]C.mr_command
	n    int
}

// maxCommands is the maximum number of calls passed to C at once. A batch needs about a dozen calls.
const maxCommands = 24

// next appends a command and returns it.
func (c *commands) next(kind device.CommandKind, s streamHandle) *C.mr_command {
	at := &c.list[c.n]
	c.n++
	*at = C.mr_command{kind: C.int32_t(kind), stream: s}
	return at
}

// copy appends a copy of bytes between host and device memory. The kind sets the direction.
func (c *commands) copy(kind device.CommandKind, s streamHandle, host unsafe.Pointer, address uint64, bytes int) {
	at := c.next(kind, s)
	at.host, at.address, at.bytes = host, C.uint64_t(address), C.uint64_t(bytes)
}

func (c *commands) fill(s streamHandle, to uint64, value byte, bytes int) {
	at := c.next(device.DoFill, s)
	at.address, at.value, at.bytes = C.uint64_t(to), C.uint64_t(value), C.uint64_t(bytes)
}

func (c *commands) launch(s streamHandle, op operatorHandle, instance unsafe.Pointer, a *device.LaunchArgs) {
	at := c.next(device.DoLaunch, s)
	at.op, at.instance = op, instance
	at.launch = C.millrace_launch{
		size: C.sizeof_millrace_launch,
		rows: C.uint64_t(a.Shape.Rows), bytes: C.uint64_t(a.Shape.Bytes), longest: C.uint64_t(a.Shape.Longest),
		batch: C.uint64_t(a.Rows.Addr), offsets: C.uint64_t(a.Offsets.Addr),
		scratch: C.uint64_t(a.Scratch.Addr), result: C.uint64_t(a.Result.Addr),
	}
}

// event appends a record of an event or a wait for an event.
func (c *commands) event(kind device.CommandKind, s streamHandle, v eventHandle) {
	c.next(kind, s).event = v
}

func (c *commands) notify(s streamHandle, token uint64) {
	c.next(device.DoNotify, s).value = C.uint64_t(token)
}

// notifiesFrom returns the number of notifications among the commands from index done on.
func (c *commands) notifiesFrom(done int) (n int) {
	for i := done; i < c.n; i++ {
		if c.list[i].kind == C.mr_notify {
			n++
		}
	}
	return n
}

// enqueue makes the calls of c in order until one fails, and returns the number of calls that succeeded.
func (l *library) enqueue(c *commands) (done int, err error) {
	if c.n == 0 {
		return 0, nil
	}
	e := newError()
	var n C.int32_t
	first := &c.list[0] // as an argument expression, it would make cgo check the whole array and allocate
	status := C.mr_enqueue(l.api, first, C.int32_t(c.n), &n, &e)
	if status == C.MILLRACE_OK {
		return c.n, nil
	}
	return int(n), failed(device.CommandKind(c.list[n].kind).String(), status, &e)
}

func (l *library) completionFD(d deviceHandle) int { return int(C.mr_completion_fd(l.api, d)) }

// completionDrain writes available tokens to tokens and returns their number.
func (l *library) completionDrain(d deviceHandle, tokens []uint64) int {
	first := (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(tokens)))
	return int(C.mr_completion_drain(l.api, d, first, C.uint32_t(len(tokens))))
}

func (l *library) gateEnqueue(s streamHandle) (uint64, error) {
	ticket, err := made("gate", func(t *C.uint64_t, e *C.millrace_error) C.int32_t { return C.mr_gate_enqueue(l.api, s, t, e) })
	return uint64(ticket), err
}

func (l *library) gateOpen(d deviceHandle, ticket uint64) {
	C.mr_gate_open(l.api, d, C.uint64_t(ticket))
}

func (l *library) rangeStart(name string) uint64 {
	return uint64(C.mr_range_start(l.api, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name))))
}

func (l *library) rangeEnd(id uint64) { C.mr_range_end(l.api, C.uint64_t(id)) }
