package quarantine

// Levels decides how large isolated batches are. A payload that was delivered before and not settled may have broken the device then, or
// was only in flight at the same time. Its level is how often that happened: 0 for a new payload. Batches get smaller with the level, so
// that in the end the payload to blame is alone. The level follows from the server's delivery count alone, because a process that dies
// remembers nothing.
type Levels struct {
	Full  int // payloads of a full batch; at least 1
	Limit int // deliveries of a payload before it is given up; at least 1
}

const (
	// shrink is how much smaller batches get with each level. With a larger factor it takes fewer restarts to find a payload
	// and more batches to try the others: 8192 payloads are tried by 512, 32, 2, and alone.
	shrink = 16

	// LoneRuns is how often a payload runs alone before it is given up, since once may be chance.
	LoneRuns = 2
)

// size is how many payloads of a level are tried at once. The last deliveries before the limit are alone.
func (l Levels) size(level int) int {
	if level > 0 && level >= l.Limit-LoneRuns {
		return 1
	}
	size := l.Full
	for ; level > 0 && size > 1; level-- {
		size /= shrink
	}
	return max(size, 1)
}

// Alone is the first level at which a payload is tried alone.
func (l Levels) Alone() int {
	level := 1
	for l.size(level) > 1 {
		level++
	}
	return level
}

// guilty reports whether a payload that was alone when a kernel lost the device may have done so for the second time, by its level.
// It is used only if the consumer has no attemptNote.
func (l Levels) guilty(level int) bool { return level >= l.Alone()+LoneRuns-1 }
