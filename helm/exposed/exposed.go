// Package exposed checks queries against the existing metrics. It reads the worker's metrics from the generated
// documentation and has a short list of other programs' metrics. It finds metrics, labels and values in a query that
// can never exist. Prometheus itself returns an empty result for such a query.
//
// The tests of the rules and of the dashboard use it. Start reading with Read and Check.
package exposed

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// Metrics maps the names of metrics to their labels, and each label to its possible values. A label that can have any
// value has an empty list.
type Metrics map[string]map[string][]string

// target lists the labels that a scrape adds to every series.
var target = []string{"namespace", "pod", "job", "instance", "container"}

// others lists the metrics of other programs, and of Prometheus itself, that rules and the dashboard may use.
var others = Metrics{
	"up": nil,
	"ALERTS": {
		"alertname": nil, "severity": {"critical", "warning", "info"}, "alertstate": {"pending", "firing"},
	},

	// From the Go client, about the worker's process.
	"process_start_time_seconds":    nil,
	"process_resident_memory_bytes": nil,

	// From kube-state-metrics. The exit code exists since version 2.10.
	"kube_pod_container_status_restarts_total":           nil,
	"kube_pod_container_status_last_terminated_exitcode": nil,
	"kube_deployment_spec_replicas":                      nil,

	// From dcgm-exporter in its default configuration.
	"DCGM_FI_DEV_GPU_UTIL":          {"UUID": nil},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE": {"UUID": nil},
	"DCGM_FI_PROF_DRAM_ACTIVE":      {"UUID": nil},
	"DCGM_FI_DEV_FB_USED":           {"UUID": nil},
	"DCGM_FI_DEV_GPU_TEMP":          {"UUID": nil},
	"DCGM_FI_DEV_POWER_USAGE":       {"UUID": nil},
	"DCGM_FI_DEV_XID_ERRORS":        {"UUID": nil},
}

var (
	// row matches a line of the table in docs/metrics.md: name, type, labels, meaning.
	row = regexp.MustCompile("^\\| `(millrace_\\w+)` \\| (counter|gauge|histogram) \\| (.*?) \\| .* \\|$")

	// described matches one label in that line, with its values if they are fixed.
	described = regexp.MustCompile("^`(\\w+)`(?:: (.+))?$")
)

// Read returns the metrics of the worker, from docs/metrics.md, and the metrics of other programs.
func Read(file string) (Metrics, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	m := Metrics{}
	for line := range strings.Lines(string(text)) {
		found := row.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		if err := m.enter(found[1], found[2], found[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("%s: no table of metrics", file)
	}
	for name, labels := range others {
		m[name] = labels
	}
	return m, nil
}

// enter adds a metric or, for a histogram, the three metrics that a scrape returns for it.
func (m Metrics) enter(name, kind, labels string) error {
	values := map[string][]string{}
	for _, text := range strings.Split(labels, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		l := described.FindStringSubmatch(strings.TrimSpace(text))
		if l == nil {
			return fmt.Errorf("%s: label %q is not understood", name, text)
		}
		values[l[1]] = nil
		if l[2] != "" {
			values[l[1]] = strings.Split(l[2], ", ")
		}
	}
	if kind != "histogram" {
		m[name] = values
		return nil
	}
	m[name+"_sum"], m[name+"_count"] = values, values
	buckets := map[string][]string{"le": nil}
	for l, v := range values {
		buckets[l] = v
	}
	m[name+"_bucket"] = buckets
	return nil
}

// Record adds a recording rule. Check accepts any label on the recorded metric.
func (m Metrics) Record(name string) { m[name] = nil }

// Check parses a query and returns a problem for each metric, label and label value that doesn't exist.
func (m Metrics) Check(query string) (problems []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			problems = append(problems, m.checkSelector(n)...)
		case *parser.AggregateExpr:
			problems = append(problems, m.checkGrouping(n)...)
		}
		return nil
	})
	return problems
}

// checkGrouping returns a problem for each label in a grouping clause that no operand of the aggregation has.
func (m Metrics) checkGrouping(a *parser.AggregateExpr) (problems []string) {
	have, open := slices.Clone(target), false
	parser.Inspect(a.Expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			known, ok := m[n.Name]
			open = open || !ok || known == nil
			have = slices.AppendSeq(have, maps.Keys(known))
		case *parser.Call:
			if n.Func.Name == "label_replace" {
				have = append(have, n.Args[1].(*parser.StringLiteral).Val) // the parser has checked its type
			}
		}
		return nil
	})
	for _, label := range a.Grouping {
		if !open && !slices.Contains(have, label) {
			problems = append(problems, fmt.Sprintf("nothing in %s has a label %s", a.Expr, label))
		}
	}
	return problems
}

func (m Metrics) checkSelector(s *parser.VectorSelector) (problems []string) {
	known, ok := m[s.Name]
	if !ok {
		return []string{fmt.Sprintf("nothing exposes %s", s.Name)}
	}
	for _, matcher := range s.LabelMatchers {
		if matcher.Name == model.MetricNameLabel || slices.Contains(target, matcher.Name) || known == nil {
			continue
		}
		values, ok := known[matcher.Name]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s has no label %s", s.Name, matcher.Name))
		case values != nil && !slices.ContainsFunc(values, matcher.Matches):
			problems = append(problems, fmt.Sprintf("%s: no value of %s is %s (there are: %s)", s.Name, matcher.Name, matcher, strings.Join(values, ", ")))
		}
	}
	return problems
}

// Names returns the distinct metrics of a query in order of appearance.
func Names(query string) ([]string, error) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return nil, err
	}
	var names []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
		return nil
	})
	return names, nil
}
