package topology

import (
	"slices"
	"strings"
)

// MapSubject puts prefix in the place of the first token of subject: with prefix "results", "ingest.web.en"
// becomes "results.web.en" and "ingest" becomes "results".
func MapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

// mappedSubjects are the subjects that MapSubject can give with that prefix, as stream subjects.
func mappedSubjects(prefix string) []string {
	return []string{prefix, prefix + ".>"}
}

// mappedFilters are the filters that match what MapSubject gives for subjects that match those of inputs.
func mappedFilters(prefix string, inputs []string) []string {
	mapped := make([]string, len(inputs))
	for i, filter := range inputs {
		if mapped[i] = MapSubject(prefix, filter); filter == ">" {
			mapped[i] = prefix + ".>"
		}
	}
	return mapped
}

// Covers says whether every subject that matches the filter wanted matches pattern too. Both may have the
// wildcards of NATS: * for one token, > for all that follow.
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

// sameSubjects says whether two lists have the same subjects, in any order.
func sameSubjects(a, b []string) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// orOne is list, or the one element where that is empty.
func orOne(list []string, one string) []string {
	if len(list) == 0 && one != "" {
		return []string{one}
	}
	return list
}
