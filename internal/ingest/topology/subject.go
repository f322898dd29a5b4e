package topology

import (
	"slices"
	"strings"

	"millrace/internal/wildcard"
)

// MapSubject replaces the first token of subject with prefix. For example, with prefix "results",
// "ingest.web.en" becomes "results.web.en", and "ingest" becomes "results".
func MapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

// mappedSubjects returns stream subjects that match every result of MapSubject with prefix.
func mappedSubjects(prefix string) []string {
	return []string{prefix, prefix + ".>"}
}

// mappedFilters maps filters of inputs to filters of the subjects that MapSubject returns for these inputs.
func mappedFilters(prefix string, inputs []string) []string {
	mapped := make([]string, len(inputs))
	for i, filter := range inputs {
		if mapped[i] = MapSubject(prefix, filter); filter == ">" {
			mapped[i] = prefix + ".>"
		}
	}
	return mapped
}

// sameSubjects reports whether two lists have the same subjects in any order.
func sameSubjects(a, b []string) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// allCovered reports whether each subject is covered by one of the filters.
func allCovered(subjects, filters []string) bool {
	return !slices.ContainsFunc(subjects, func(subject string) bool {
		return !slices.ContainsFunc(filters, func(f string) bool { return wildcard.Covers(f, subject) })
	})
}

// orOne returns list. If list is empty and the string one is not, it returns a list of that string.
func orOne(list []string, one string) []string {
	if len(list) == 0 && one != "" {
		return []string{one}
	}
	return list
}
