package compiled

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// SourceOption returns the compiler's option that writes the SHA-256 of the source file into the description: -DMILLRACE_SOURCE= and the
// bytes, separated by commas.
func SourceOption(text []byte) string {
	sum := sha256.Sum256(text)
	numbers := make([]string, len(sum))
	for i, b := range sum {
		numbers[i] = strconv.Itoa(int(b))
	}
	return "-DMILLRACE_SOURCE=" + strings.Join(numbers, ",")
}
