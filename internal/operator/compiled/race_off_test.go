//go:build !race

package compiled

// raceEnabled reports whether the race detector is on.
const raceEnabled = false
