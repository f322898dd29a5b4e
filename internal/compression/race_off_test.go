//go:build !race

package compression

const raceDetector = false
