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
	return OverlapTokens(strings.Split(a, "."), strings.Split(b, "."), Meet)
}

// OverlapTokens is like Overlap for the tokens of two filters. meet reports whether one token of a subject can match
// both x and y. OverlapTokens doesn't call meet for the token >.
func OverlapTokens(a, b []string, meet func(x, y string) bool) bool {
	for i := 0; ; i++ {
		switch {
		case i == len(a) || i == len(b):
			return len(a) == len(b)
		case a[i] == ">" || b[i] == ">":
			return true
		case !meet(a[i], b[i]):
			return false
		}
	}
}

// Meet reports whether one token of a subject can match both x and y, which must not be >.
func Meet(x, y string) bool { return x == y || x == "*" || y == "*" }
