package streams

import (
	"syscall"
	"time"
)

// timerSlack is prctl's PR_SET_TIMERSLACK.
const timerSlack = 29

// preciseTimers lets the calling thread's sleeps end when they are due: by default Linux may add 50 us to each, to
// wake several threads at once. Where that is refused naps are longer, and nothing else is different.
func preciseTimers() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, timerSlack, uintptr(time.Microsecond), 0)
}

// nap sleeps in the kernel: the runtime's own sleep rounds what is under a millisecond up to one where nothing else
// runs. A signal may end it early.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil)
}
