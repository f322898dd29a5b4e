package config

// maxTypos is how many letters a name may be away from a known one to be taken for a misspelling of it. The
// names that Kubernetes adds for a service called millrace (MILLRACE_PORT, MILLRACE_SERVICE_HOST and so on)
// are further from all of ours.
const maxTypos = 2

// nearest is the known name closest to name, if it is at most maxTypos away; empty otherwise.
func nearest(name string, known []string) string {
	best, least := "", maxTypos+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's edit distance in bytes: insertions, deletions and substitutions.
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
