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
	for n := least; ; n *= 4 {
		took, err := run(n)
		if err != nil {
			return 0, err
		}
		// An eighth of the turn is long enough to be projected on the whole.
		if took >= turn/8 || n > most/4 {
			n = int(float64(n) * float64(turn) / float64(max(took, 1)))
			return min(max(n, least), most), nil
		}
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
