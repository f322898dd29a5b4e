//go:build race

package devkit

// raceEnabled is true with the race detector.
const raceEnabled = true
