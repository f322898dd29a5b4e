package bench

import (
	"syscall"
	"time"
)

// maxTimes bounds how often something is done in one round.
const maxTimes = 1000000

// pace finds how often to do something so that it takes about turn, by doing it: least times or more. run does it n
// times and says how long that took. What pace tries is a warm-up too.
func pace(turn time.Duration, least int, run func(n int) (time.Duration, error)) (int, error) {
	return paceWithin(turn, least, maxTimes, run)
}

// paceWithin is pace that neither tries nor finds more than most times, which is at least least.
func paceWithin(turn time.Duration, least, most int, run func(n int) (time.Duration, error)) (int, error) {
	for n := least; ; {
		took, err := run(n)
		if err != nil {
			return 0, err
		}
		fits := float64(turn) / float64(max(took, 1)) // how often that fits into a turn
		// Half a turn is enough to be projected on the whole; of a shorter time too much is what comes once, however often.
		if fits <= 2 || n == most {
			return min(max(int(float64(n)*fits), least), most), nil
		}
		n = min(int(float64(n)*min(fits, 4)), most)
	}
}

// cpuTime is the processor time that this process has taken so far, on all cores, by getrusage(2).
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("bench: getrusage of this process: " + err.Error()) // it has no reason to fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
