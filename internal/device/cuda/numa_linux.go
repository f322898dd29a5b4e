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

// maxNodes is the kernel's own limit for the number of NUMA nodes.
const maxNodes = 1024

// policyRefused makes sure that the warning about refused placement, as in some containers, appears only once.
var policyRefused sync.Once

// preferNode makes the calling thread prefer memory of the given NUMA node until restore is called on the same goroutine. It
// does nothing if node is empty. It also does nothing if the process was started with a memory policy, for example by
// numactl, because that policy takes precedence. Pinning allocates every page within the call, so pages don't have to
// be touched.
func preferNode(node string) (restore func()) {
	none := func() {}
	number, err := strconv.Atoi(node)
	if err != nil || number < 0 || number >= maxNodes {
		return none
	}
	runtime.LockOSThread() // a memory policy belongs to a thread
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
		_, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, policyDefault, 0, 0) // the kernel always accepts the previous policy
		runtime.UnlockOSThread()
	}
}
