package rules

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"millrace/helm/exposed"
	links "millrace/helm/runbooks"
)

const (
	rulesFile   = "../millrace/files/rules.yaml"
	metricsFile = "../../docs/metrics.md"
	runbooks    = "../../docs/runbooks"
)

// severities are the levels of urgency. critical pages somebody, warning can wait until the next working day, and info
// is only for dashboards.
var severities = []string{"critical", "warning", "info"}

// read parses the rules as a current Prometheus does.
func read(t *testing.T) (alerts, recordings []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				alerts = append(alerts, r)
			} else {
				recordings = append(recordings, r)
			}
		}
	}
	if len(alerts) == 0 || len(recordings) == 0 {
		t.Fatalf("%s has %d alerts and %d recording rules", rulesFile, len(alerts), len(recordings))
	}
	return alerts, recordings
}

func TestAlertsTellWhatPeopleNeed(t *testing.T) {
	alerts, _ := read(t)
	for _, a := range alerts {
		if !slices.Contains(severities, a.Labels["severity"]) {
			t.Errorf("%s: severity %q: set one of %v", a.Alert, a.Labels["severity"], severities)
		}
		summary, description := a.Annotations["summary"], a.Annotations["description"]
		if !strings.Contains(summary, "{{") || strings.Contains(summary, "$value") {
			t.Errorf("%s: the summary %q must say which worker or job, and leave figures to the description", a.Alert, summary)
		}
		if description == "" || strings.Contains(description, "\n") {
			t.Errorf("%s: the description must have exactly one line: %q", a.Alert, description)
		}
		page := links.Address + "/" + a.Alert + ".md"
		if a.Annotations["runbook_url"] != page {
			t.Errorf("%s: runbook_url is %q, want %s", a.Alert, a.Annotations["runbook_url"], page)
		}
	}
}

// headings are the required sections of every runbook.
var headings = []string{"## What it means", "## What to look at", "## What to do"}

func TestEveryAlertHasARunbook(t *testing.T) {
	alerts, _ := read(t)
	index, err := os.ReadFile(filepath.Join(runbooks, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"README.md"}
	for _, a := range alerts {
		file := a.Alert + ".md"
		want = append(want, file)
		text, err := os.ReadFile(filepath.Join(runbooks, file))
		if err != nil {
			t.Errorf("%s has no runbook: %v", a.Alert, err)
			continue
		}
		for _, heading := range append([]string{"# " + a.Alert}, headings...) {
			if !strings.Contains("\n"+string(text), "\n"+heading+"\n") {
				t.Errorf("%s: no heading %q", file, heading)
			}
		}
		if !strings.Contains(string(index), "("+file+") | "+a.Labels["severity"]+" |") || !strings.Contains(string(text), "\nSeverity: "+a.Labels["severity"]+".\n") {
			t.Errorf("README.md and %s must both say that the severity is %s", file, a.Labels["severity"])
		}
	}
	pages, err := os.ReadDir(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !slices.Contains(want, page.Name()) {
			t.Errorf("%s is the runbook of no alert", page.Name())
		}
	}
}

// promtoolTest contains the relevant parts of a promtool test file.
type promtoolTest struct {
	RuleFiles []string `yaml:"rule_files"`
	Tests     []struct {
		Name   string
		Alerts []struct {
			Name string      `yaml:"alertname"`
			Want []yaml.Node `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
		Exprs []struct {
			Expr string
			Want []yaml.Node `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

// unitTests returns all promtool tests in this folder by file.
func unitTests(t *testing.T) map[string]promtoolTest {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests for promtool: %v", err)
	}
	all := map[string]promtoolTest{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p promtoolTest
		if err := yaml.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !slices.Equal(p.RuleFiles, []string{rulesFile}) {
			t.Errorf("%s tests %v, not %s", file, p.RuleFiles, rulesFile)
		}
		all[file] = p
	}
	return all
}

func TestEveryAlertIsTestedFiringAndNot(t *testing.T) {
	fires, rests := map[string]int{}, map[string]int{}
	for _, p := range unitTests(t) {
		for _, test := range p.Tests {
			for _, a := range test.Alerts {
				if len(a.Want) > 0 {
					fires[a.Name]++
				} else {
					rests[a.Name]++
				}
			}
		}
	}
	alerts, _ := read(t)
	for _, a := range alerts {
		if fires[a.Alert] == 0 || rests[a.Alert] == 0 {
			t.Errorf("%s: it fires in %d tests and does not fire in %d tests: write at least one test of each kind", a.Alert, fires[a.Alert], rests[a.Alert])
		}
		delete(fires, a.Alert)
		delete(rests, a.Alert)
	}
	for name := range rests {
		t.Errorf("a test names the alert %s, which doesn't exist", name)
	}
}

func TestEveryRecordingRuleIsTested(t *testing.T) {
	tested := map[string]bool{}
	for _, p := range unitTests(t) {
		for _, test := range p.Tests {
			for _, e := range test.Exprs {
				names, err := exposed.Names(e.Expr)
				if err != nil {
					t.Error(err)
				}
				for _, name := range names {
					tested[name] = tested[name] || len(e.Want) > 0
				}
			}
		}
	}
	_, recordings := read(t)
	for _, r := range recordings {
		if !tested[r.Record] {
			t.Errorf("%s: the rule has a value in no test", r.Record)
		}
	}
}

// recorded matches a recording rule's name: its labels, the metric and the operations.
var recorded = regexp.MustCompile(`^[a-z_]+:millrace_[a-z_]+:[a-z0-9_]+$`)

func TestRulesAskForWhatThereIs(t *testing.T) {
	metrics, err := exposed.Read(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	alerts, recordings := read(t)
	for _, r := range recordings {
		if !recorded.MatchString(r.Record) {
			t.Errorf("%s is no name of the form level:metric:operation", r.Record)
		}
		// The order matters, because a rule that precedes its inputs lags behind them.
		for _, problem := range metrics.Check(r.Expr) {
			t.Errorf("%s: %s", r.Record, problem)
		}
		metrics.Record(r.Record)
	}
	for _, a := range alerts {
		for _, problem := range metrics.Check(a.Expr) {
			t.Errorf("%s: %s", a.Alert, problem)
		}
	}
}
