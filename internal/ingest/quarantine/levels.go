package quarantine

// Levels says how suspects are tried. A payload that was delivered before and not settled may be what broke the device
// then, or may only have been near. Its level is how often that happened: 0 for a fresh one. The higher the level, the
// smaller the batches it is tried in, so that of a batch that breaks the device again few remain suspect, and the one
// that did it is alone in the end. All of it follows from the count that comes with each delivery, since nobody else
// remembers when a process dies.
type Levels struct {
	Full  int // payloads of a full batch; at least 1
	Limit int // deliveries of a payload before it is given up; at least 1
}

const (
	// shrink is by how much batches get smaller with each level. A larger one takes fewer restarts to find a payload
	// and more batches for the others: 8192 payloads are tried by 512, by 32, by 2, and alone.
	shrink = 16

	// LoneRuns is how often a suspect runs alone before it is given up: once may be chance.
	LoneRuns = 2
)

// size is how many payloads of that level are tried at once. The last deliveries before the limit are alone.
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

// Alone is the first level of a suspect that is tried alone.
func (l Levels) Alone() int {
	level := 1
	for l.size(level) > 1 {
		level++
	}
	return level
}

// guilty says whether a payload that ran alone as a kernel lost the device may have done so for the second time, by how often
// it came. It is asked only where nothing better is known: see tryMark.
func (l Levels) guilty(level int) bool { return level >= l.Alone()+LoneRuns-1 }
