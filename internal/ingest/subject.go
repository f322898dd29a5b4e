package ingest

import "strings"

// mapSubject puts prefix in the place of the first token of subject: with prefix "results", "ingest.web.en"
// becomes "results.web.en" and "ingest" becomes "results".
func mapSubject(prefix, subject string) string {
	if dot := strings.IndexByte(subject, '.'); dot >= 0 {
		return prefix + subject[dot:]
	}
	return prefix
}

// mappedSubjects are the subjects that mapSubject can give with that prefix, as stream subjects.
func mappedSubjects(prefix string) []string {
	return []string{prefix, prefix + ".>"}
}
