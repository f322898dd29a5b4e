package streams

import (
	"syscall"
	"time"
)

// timerSlack is the prctl option PR_SET_TIMERSLACK.
const timerSlack = 29

// preciseTimers reduces the calling thread's timer slack to 1 us. By default, Linux may extend each sleep by 50 us in
// order to wake several threads at once. If the kernel refuses the call, sleeps are less precise.
func preciseTimers() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, timerSlack, uintptr(time.Microsecond), 0)
}

// shortSleep sleeps for d in a system call, because time.Sleep rounds d up to a millisecond while no other goroutine
// runs. A signal may end the sleep early.
func shortSleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
