package ingest

import (
	"strings"

	"millrace/internal/ingest/store"
)

// mapSubject puts prefix in the place of the first token of subject: with prefix "results", "ingest.web.en"
// becomes "results.web.en" and "ingest" becomes "results".
func mapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

// shortSubject cuts a subject to what a publisher sends. The whole of the input's is in the headers.
func shortSubject(subject string) string {
	if len(subject) <= store.MaxSubject {
		return subject
	}
	return strings.TrimRight(subject[:store.MaxSubject], ".")
}

// mappedSubjects are the subjects that mapSubject can give with that prefix, as stream subjects.
func mappedSubjects(prefix string) []string {
	return []string{prefix, prefix + ".>"}
}

// mappedFilters are the filters that match what mapSubject gives for subjects that match those of inputs.
func mappedFilters(prefix string, inputs []string) []string {
	mapped := make([]string, len(inputs))
	for i, filter := range inputs {
		if mapped[i] = mapSubject(prefix, filter); filter == ">" {
			mapped[i] = prefix + ".>"
		}
	}
	return mapped
}

// covers says whether every subject that matches the filter wanted matches pattern too. Both may have the
// wildcards of NATS: * for one token, > for all that follow.
func covers(pattern, wanted string) bool {
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
