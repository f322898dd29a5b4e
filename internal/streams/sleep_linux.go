package streams

import (
	"syscall"
	"time"
)

// timerSlack is prctl's PR_SET_TIMERSLACK.
const timerSlack = 29

// preciseTimers lets the calling thread's sleeps end on time. By default Linux may add 50 us to each sleep in order to
// wake several threads at once. If the call is refused, sleeps are longer and nothing else changes.
func preciseTimers() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, timerSlack, uintptr(time.Microsecond), 0)
}

// shortSleep sleeps in the kernel. The runtime's own sleep rounds up to a millisecond when nothing else runs. A signal
// may end the sleep early.
func shortSleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
