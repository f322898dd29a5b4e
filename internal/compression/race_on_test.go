//go:build race

package compression

const raceDetector = true
