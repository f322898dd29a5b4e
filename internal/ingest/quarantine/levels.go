package quarantine

// Levels determines the size of isolated batches. A payload that was delivered before and not settled may have broken the device,
// or was only in flight at the same time. Its level is the number of such deliveries, and 0 for a new payload. Batches get
// smaller with the level, until the failing payload is alone. The level depends only on the server's delivery count, because a
// process that dies loses its memory.
type Levels struct {
	Full  int // number of payloads in a full batch; at least 1
	Limit int // number of deliveries before a payload is given up; at least 1
}

const (
	// shrink is the factor by which batches shrink with each level. With a larger factor, fewer restarts find a payload, but the
	// other payloads need more batches. 8192 payloads are tried in batches of 512, 32, 2 and 1.
	shrink = 16

	// LoneRuns is the number of times that a payload runs alone before it is given up, because one failure may be chance.
	LoneRuns = 2
)

// size returns the maximum number of payloads of a level per batch. Before the limit, it is 1 for the last LoneRuns levels.
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

// AloneLevel returns the first level at which a payload is tried alone.
func (l Levels) AloneLevel() int {
	level := 1
	for l.size(level) > 1 {
		level++
	}
	return level
}

// isGuilty reports whether a payload of the given level may have broken the device twice while it ran alone. It is used only if the
// consumer has no attemptNote.
func (l Levels) isGuilty(level int) bool { return level >= l.AloneLevel()+LoneRuns-1 }
