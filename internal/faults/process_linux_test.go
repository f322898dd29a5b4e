package faults

import (
	"os/exec"
	"runtime"
	"syscall"
)

// pinThread binds the calling goroutine to its own thread.
func pinThread() { runtime.LockOSThread() }

// dieWithParent makes the kernel kill the process when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
