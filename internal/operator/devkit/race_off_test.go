//go:build !race

package devkit

// raceEnabled reports whether the race detector is on.
const raceEnabled = false
