package architecture

import (
	"fmt"
	"regexp"
	"strings"
)

// The pages that list every metric and every variable, and the file with every recording rule. Both pages are generated
// from the code, and each is checked by a test of the package that owns the names.
const (
	metricsPage   = "docs/metrics.md"
	variablesPage = "docs/configuration.md"
	rulesFile     = "helm/millrace/files/rules.yaml"
)

var (
	metricName   = regexp.MustCompile(`\bmillrace_[a-z_]+`)
	variableName = regexp.MustCompile(`\bMILLRACE_[A-Z_]+`)

	// recordedName matches the name of a recording rule: level, metric and operations.
	recordedName = regexp.MustCompile(`\b[a-z_]+:millrace_[a-z_]+:[a-z0-9_]+`)

	// series matches the suffix of a series that Prometheus derives from a histogram.
	series = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// runbooksNameWhatExists checks the pages that people open during an incident.
var runbooksNameWhatExists = rule{
	name: "runbooks name metrics and variables that exist",
	check: func(tr *tree) (found []string) {
		metrics, variables, recorded := tr.tableOf(metricsPage, metricName), tr.tableOf(variablesPage, variableName), tr.recorded()
		for _, f := range tr.files {
			if f.path != "docs/operations.md" && f.path != "docs/troubleshooting.md" && !strings.HasPrefix(f.path, "docs/runbooks/") {
				continue
			}
			eachLine(f.text, func(number int, line string) {
				for _, name := range recordedName.FindAllString(line, -1) {
					if !recorded[name] {
						found = append(found, fmt.Sprintf("%s:%d: %s is not a rule of %s", f.path, number, name, rulesFile))
					}
				}
				line = recordedName.ReplaceAllString(line, "")
				for _, name := range metricName.FindAllString(line, -1) {
					if !metrics[name] && !metrics[series.ReplaceAllString(name, "")] {
						found = append(found, fmt.Sprintf("%s:%d: %s is not a metric of %s", f.path, number, name, metricsPage))
					}
				}
				for _, name := range variableName.FindAllString(line, -1) {
					if !variables[name] {
						found = append(found, fmt.Sprintf("%s:%d: %s is not a variable of %s", f.path, number, name, variablesPage))
					}
				}
			})
		}
		return found
	},
	broken: map[string]string{
		metricsPage:               "| `millrace_lanes` | gauge |\n| `millrace_stage_seconds` | histogram |\nmillrace_elsewhere\n",
		variablesPage:             "| `MILLRACE_LANES` | `4` |\n",
		"docs/operations.md":      "`millrace_lanes`, rate(millrace_stage_seconds_bucket[5m]), MILLRACE_LANES=4\n`millrace_lane`\n",
		"docs/troubleshooting.md": "`MILLRACE_LANE`\n",
		"docs/runbooks/a.md":      "millrace_elsewhere\n",
		"docs/runbooks/b.md":      "`job:millrace_backlog:seconds`, job:millrace_backlog:minutes\n",
		rulesFile:                 "      - record: job:millrace_backlog:seconds\n",
		"docs/other.md":           "millrace_other\n",
	},
	findings: []string{
		"docs/operations.md:2: millrace_lane is not a metric of docs/metrics.md",
		"docs/runbooks/a.md:1: millrace_elsewhere is not a metric of docs/metrics.md",
		"docs/runbooks/b.md:1: job:millrace_backlog:minutes is not a rule of helm/millrace/files/rules.yaml",
		"docs/troubleshooting.md:1: MILLRACE_LANE is not a variable of docs/configuration.md",
	},
}

// tableOf returns the names that begin a row of a table on the page.
func (t *tree) tableOf(page string, name *regexp.Regexp) map[string]bool {
	names := map[string]bool{}
	for _, f := range t.files {
		if f.path != page {
			continue
		}
		eachLine(f.text, func(_ int, line string) {
			if row, ok := strings.CutPrefix(line, "| `"); ok {
				first, _, _ := strings.Cut(row, "`")
				names[name.FindString(first)] = true
			}
		})
	}
	return names
}

func (t *tree) recorded() map[string]bool {
	names := map[string]bool{}
	for _, f := range t.files {
		if f.path != rulesFile {
			continue
		}
		eachLine(f.text, func(_ int, line string) {
			if _, name, ok := strings.Cut(line, "- record: "); ok {
				names[name] = true
			}
		})
	}
	return names
}
