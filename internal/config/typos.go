package config

// maxTypos is the largest edit distance at which an unknown name counts as a misspelling of a known one. The names that Kubernetes adds for
// a service called millrace, such as MILLRACE_PORT and MILLRACE_SERVICE_HOST, are further from all known names.
const maxTypos = 2

// nearest returns the known name that is closest to name, or "" if none is within maxTypos.
func nearest(name string, known []string) string {
	best, least := "", maxTypos+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of a and b in bytes: the least number of insertions, deletions and substitutions.
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
