package bench

import (
	"syscall"
	"time"
)

// maxTimes is the maximum number of repetitions in one round.
const maxTimes = 1000000

// pace returns how often to repeat an operation so that it takes about turn: from least to most times. It calls run,
// which repeats the operation n times and returns how long that took. The calls also warm up.
func pace(turn time.Duration, least, most int, run func(n int) (time.Duration, error)) (int, error) {
	for n := least; ; {
		took, err := run(n)
		if err != nil {
			return 0, err
		}
		fits := float64(turn) / float64(max(took, 1)) // how many repetitions fit into a turn
		// Half a turn is long enough to extrapolate from. In a shorter time, one-time costs weigh too much.
		if fits <= 2 || n == most {
			return min(max(int(float64(n)*fits), least), most), nil
		}
		n = min(int(float64(n)*min(fits, 4)), most)
	}
}

// CPUTime returns the processor time that this process has used so far, on all cores, from getrusage(2).
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("bench: getrusage of this process: " + err.Error()) // it can't fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
