package house

import (
	"fmt"
	"regexp"
	"strings"
)

// Pages that people open when something is wrong name metrics and variables, and one that does not exist sends them the wrong
// way. Both are listed in pages that are made from the code, each checked by a test of its package.
const (
	metricsPage   = "docs/metrics.md"
	variablesPage = "docs/configuration.md"
	rulesFile     = "helm/millrace/files/rules.yaml"
)

var (
	metricName   = regexp.MustCompile(`\bmillrace_[a-z_]+`)
	variableName = regexp.MustCompile(`\bMILLRACE_[A-Z_]+`)

	// recordedName is that of a recording rule: level, metric and operations.
	recordedName = regexp.MustCompile(`\b[a-z_]+:millrace_[a-z_]+:[a-z0-9_]+`)

	// series is what Prometheus makes of a histogram.
	series = regexp.MustCompile(`_(bucket|sum|count)$`)
)

var operatorsPagesNameWhatExists = rule{
	name: "operators' pages name metrics and variables that exist",
	check: func(tr *tree) (found []string) {
		metrics, variables, recorded := tr.tableOf(metricsPage, metricName), tr.tableOf(variablesPage, variableName), tr.recorded()
		for _, f := range tr.files {
			if f.path != "docs/operations.md" && f.path != "docs/troubleshooting.md" && !strings.HasPrefix(f.path, "docs/runbooks/") {
				continue
			}
			eachLine(f.text, func(number int, line string) {
				for _, name := range recordedName.FindAllString(line, -1) {
					if !recorded[name] {
						found = append(found, fmt.Sprintf("%s:%d: %s is no rule of %s", f.path, number, name, rulesFile))
					}
				}
				line = recordedName.ReplaceAllString(line, "")
				for _, name := range metricName.FindAllString(line, -1) {
					if !metrics[name] && !metrics[series.ReplaceAllString(name, "")] {
						found = append(found, fmt.Sprintf("%s:%d: %s is no metric of %s", f.path, number, name, metricsPage))
					}
				}
				for _, name := range variableName.FindAllString(line, -1) {
					if !variables[name] {
						found = append(found, fmt.Sprintf("%s:%d: %s is no variable of %s", f.path, number, name, variablesPage))
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
		"docs/operations.md:2: millrace_lane is no metric of docs/metrics.md",
		"docs/runbooks/a.md:1: millrace_elsewhere is no metric of docs/metrics.md",
		"docs/runbooks/b.md:1: job:millrace_backlog:minutes is no rule of helm/millrace/files/rules.yaml",
		"docs/troubleshooting.md:1: MILLRACE_LANE is no variable of docs/configuration.md",
	},
}

// tableOf is the names of a page that begin a row of its table.
func (tr *tree) tableOf(page string, name *regexp.Regexp) map[string]bool {
	names := map[string]bool{}
	for _, f := range tr.files {
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

// recorded is the names of the recording rules.
func (tr *tree) recorded() map[string]bool {
	names := map[string]bool{}
	for _, f := range tr.files {
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
