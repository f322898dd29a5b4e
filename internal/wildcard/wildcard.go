// Package wildcard compares filters of NATS subjects. A filter may have wildcards. * matches one token, and > as the
// last token matches one or more tokens. The functions expect well-formed filters.
package wildcard

import "strings"

// Covers reports whether every subject that matches the filter wanted also matches pattern.
func Covers(pattern, wanted string) bool {
	for {
		p, patternRest, patternMore := strings.Cut(pattern, ".")
		w, wantedRest, wantedMore := strings.Cut(wanted, ".")
		switch {
		case p == ">":
			return true
		case w == ">", p != "*" && p != w, patternMore != wantedMore:
			return false
		case !patternMore:
			return true
		}
		pattern, wanted = patternRest, wantedRest
	}
}

// Overlap reports whether a subject can match both filters.
func Overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; ; i++ {
		switch {
		case i == len(x) || i == len(y):
			return len(x) == len(y)
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
}
