package config

import (
	"regexp"
	"slices"
	"strings"
)

// maxTypos is the largest edit distance between a misspelt name and the correct name.
const maxTypos = 2

// warnUnknown warns about names in the environment that look like variables of the worker and have no effect. Such a
// name begins with the prefix or a misspelling of the prefix. known holds the names of the variables. warnUnknown
// ignores names that Kubernetes sets for a service.
func (c *Config) warnUnknown(names, known []string) {
	slices.Sort(names)
	for _, name := range names {
		corrected, looksOurs := correctPrefix(name)
		if !looksOurs || slices.Contains(known, name) || isServiceVariable(name, names) {
			continue
		}
		advice := "see worker config"
		if meant := nearest(corrected, known); meant != "" {
			advice = "did you mean " + meant + "?"
		}
		c.warn("%s is not a variable of this worker and has no effect: %s", name, advice)
	}
}

// correctPrefix returns name in upper case with the correct prefix. For example, mILRACE_LANES becomes MILLRACE_LANES.
// ok is false if name does not begin with the prefix or a misspelling of the prefix.
func correctPrefix(name string) (corrected string, ok bool) {
	const prefix = Prefix + "_"
	name = strings.ToUpper(name)
	best, minimum := 0, maxTypos+1
	for n := len(prefix) - maxTypos; n <= min(len(prefix)+maxTypos, len(name)); n++ {
		if d := distance(name[:n], prefix); d < minimum {
			best, minimum = n, d
		}
	}
	return prefix + name[best:], minimum <= maxTypos
}

// serviceSuffix matches the suffixes that Kubernetes appends to a service's name, in the variables that describe the
// service to pods.
var serviceSuffix = regexp.MustCompile(`^_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// isServiceVariable reports whether Kubernetes sets the variable for a service. Kubernetes sets all variables of a
// service together. So MILLRACE_HTTP_PORT belongs to a service only if names contains MILLRACE_HTTP_SERVICE_HOST.
func isServiceVariable(name string, names []string) bool {
	return slices.ContainsFunc(names, func(other string) bool {
		service, ok := strings.CutSuffix(other, "_SERVICE_HOST")
		suffix, ofService := strings.CutPrefix(name, service)
		return ok && ofService && serviceSuffix.MatchString(suffix)
	})
}

// nearest returns the known name that is closest to name, or "" if no known name is close. If the first word after the
// prefix is correct, name may have twice as many typos. For example, MILLRACE_BATCH_SIZE is close to
// MILLRACE_BATCH_BYTES.
func nearest(name string, known []string) string {
	best, minimum := "", 2*maxTypos+1
	for _, k := range known {
		d := distance(name, k)
		if d < minimum && (d <= maxTypos || firstWord(name) == firstWord(k)) {
			best, minimum = k, d
		}
	}
	return best
}

// firstWord returns the first word after the prefix, such as BATCH in MILLRACE_BATCH_BYTES.
func firstWord(name string) string {
	word, _, _ := strings.Cut(strings.TrimPrefix(name, Prefix+"_"), "_")
	return word
}

// distance returns the Levenshtein distance of a and b in bytes: the minimum number of insertions, deletions and
// substitutions.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
