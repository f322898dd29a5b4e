//go:build !race

package compiled

// raceEnabled reports whether the race detector is enabled.
const raceEnabled = false
