//go:build race

package devkit

// raceEnabled reports whether the race detector is enabled.
const raceEnabled = true
