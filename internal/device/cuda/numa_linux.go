//go:build cgo

package cuda

import (
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory policies of set_mempolicy(2).
const (
	policyDefault   = 0
	policyPreferred = 1
)

// maxNodes bounds the numbers of NUMA nodes: the kernel's own bound is 1024.
const maxNodes = 1024

// policyRefused says once that memory cannot be placed: containers may not be allowed to.
var policyRefused sync.Once

// preferNode has the calling thread take memory from that NUMA node, while there is some, until restore is called on the
// same goroutine. It does nothing for an empty node, nor where the process was started under a policy, as by numactl: who
// did that has decided. Pinning makes the system find every page within the call, so no page has to be touched.
func preferNode(node string) (restore func()) {
	none := func() {}
	number, err := strconv.Atoi(node)
	if err != nil || number < 0 || number >= maxNodes {
		return none
	}
	runtime.LockOSThread() // a policy is the thread's
	var mode int32
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	if errno != 0 || mode != policyDefault {
		runtime.UnlockOSThread()
		return none
	}
	var mask [maxNodes / 64]uint64
	mask[number/64] = 1 << (number % 64)
	_, _, errno = unix.Syscall(unix.SYS_SET_MEMPOLICY, policyPreferred, uintptr(unsafe.Pointer(&mask)), maxNodes+1)
	if errno != 0 {
		runtime.UnlockOSThread()
		policyRefused.Do(func() {
			slog.Warn("pinned memory is not placed at the GPU's NUMA node, because the system refuses it: "+
				"start the worker under numactl --cpunodebind and --preferred, or allow set_mempolicy", "numa_node", node, "error", errno)
		})
		return none
	}
	return func() {
		_, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, policyDefault, 0, 0) // what was there before is never refused
		runtime.UnlockOSThread()
	}
}
