//go:build !race

package compiled

// raceEnabled is true with the race detector.
const raceEnabled = false
