//go:build !race

package conformance_test

// raceEnabled reports that the race detector is on.
const raceEnabled = false
