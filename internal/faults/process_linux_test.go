package faults

import (
	"os/exec"
	"runtime"
	"syscall"
)

// pinThread keeps the calling goroutine on a thread that is its own.
func pinThread() { runtime.LockOSThread() }

// dieWithParent has the kernel kill the process when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
