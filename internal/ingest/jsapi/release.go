package jsapi

import (
	"fmt"
	"strconv"
	"strings"
)

// Release has the first two numbers of a nats-server version.
type Release struct{ Major, Minor int }

// String returns the release in the form "2.14".
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// In reports whether a server with the given version, for example 2.14.0-RC.1, has the features of the release. It returns false
// if it can't parse version.
func (r Release) In(version string) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(second)
	return err == nil && (major > r.Major || major == r.Major && minor >= r.Minor)
}
