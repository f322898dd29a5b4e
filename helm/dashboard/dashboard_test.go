package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/helm/exposed"
	"millrace/helm/runbooks"
)

const (
	committed   = "../millrace/files/dashboard.json"
	rulesFile   = "../millrace/files/rules.yaml"
	metricsFile = "../../docs/metrics.md"
)

func TestCommittedIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what this program writes: cd helm && go run ./dashboard > millrace/files/dashboard.json", committed)
	}
}

// TestRunbooksAreWhereTheRulesSay: the dashboard's links begin like those of the rules.
func TestRunbooksAreWhereTheRulesSay(t *testing.T) {
	var all bytes.Buffer
	if err := write(&all); err != nil {
		t.Fatal(err)
	}
	if want := `"query": "` + runbooks.Address + `"`; !strings.Contains(all.String(), want) {
		t.Errorf("the dashboard has no variable with %s", want)
	}
}

// inGrafana replaces the variables that Grafana replaces before it queries Prometheus.
var inGrafana = strings.NewReplacer(
	"$__rate_interval", "5m", "$__range", "1h", "$namespace", ".*", "$pod", ".*", "$device", ".*",
)

// queries returns all queries of the dashboard, by the title of their panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, p := range panels() {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], inGrafana.Replace(target.Expr))
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), \w+\)$`)
	for _, v := range variables() {
		if v["type"] != "query" {
			continue
		}
		m := values.FindStringSubmatch(v["definition"].(string))
		if m == nil {
			t.Fatalf("variable %s: %q is not of the form label_values(SELECTOR, LABEL)", v["name"], v["definition"])
		}
		all["variable "+v["name"].(string)] = []string{inGrafana.Replace(m[1])}
	}
	starts := restartsOfWorkers()
	all["annotation "+starts["name"].(string)] = []string{inGrafana.Replace(starts["expr"].(string))}
	return all
}

// ruleNames returns the names of the rules: of recording rules, or of alerts.
func ruleNames(t *testing.T, kind string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\s+- `+kind+`: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("no %s in %s", kind, rulesFile)
	}
	return names
}

func TestQueriesAskForWhatThereIs(t *testing.T) {
	metrics, err := exposed.Read(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ruleNames(t, "record") {
		metrics.Record(name)
	}
	for who, exprs := range queries(t) {
		for _, expr := range exprs {
			if strings.Contains(strings.ReplaceAll(expr, `"$1"`, ""), "$") {
				t.Errorf("%s: a variable that there is not: %s", who, expr)
			}
			for _, problem := range metrics.Check(expr) {
				t.Errorf("%s: %s", who, problem)
			}
		}
	}
}

// indirect lists metrics that no panel uses directly, with the reason. Without a reason, a recording rule on the
// dashboard uses them.
var indirect = map[string]string{
	"millrace_batches_total":         "the histograms of batches count them too",
	"millrace_batch_limit_payloads":  "",
	"millrace_batch_limit_bytes":     "",
	"millrace_ack_wait_seconds":      "",
	"millrace_ack_headroom_seconds":  "",
	"millrace_batch_payloads":        "",
	"millrace_redeliveries_total":    "",
	"millrace_overlap_seconds_total": "",

	"millrace_engine_busy_seconds_total": "",
}

func TestEveryMetricIsOnTheDashboard(t *testing.T) {
	metrics, err := exposed.Read(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	asked := ""
	for _, exprs := range queries(t) {
		asked += strings.Join(exprs, "\n") + "\n"
	}
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for name := range metrics {
		name = suffix.ReplaceAllString(name, "")
		if !strings.HasPrefix(name, "millrace_") || strings.Contains(asked, name) {
			continue
		}
		why, known := indirect[name]
		if !known || why == "" && !strings.Contains(string(rules), name) {
			t.Errorf("no panel shows %s, nor a recording rule", name)
		}
	}
}

func TestPanels(t *testing.T) {
	var linked []string
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range panels() {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("%s: a second panel of that title or number", p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > width {
			t.Errorf("%s: outside the grid: %+v", p.Title, g)
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s asks nothing", p.Title)
		}
		if unit := p.FieldConfig.Defaults["unit"]; unit == nil && p.Type != "table" && p.Type != "heatmap" {
			t.Errorf("%s has no unit", p.Title)
		}
		for _, q := range p.Targets {
			if q.LegendFormat == "" && p.Type != "table" {
				t.Errorf("%s: a query without a legend: %s", p.Title, q.Expr)
			}
		}
		for _, l := range p.Links {
			linked = append(linked, strings.TrimSuffix(strings.TrimPrefix(l["url"].(string), "${runbooks}/"), ".md"))
		}
	}
	alerts := ruleNames(t, "alert")
	for _, a := range alerts {
		if !slices.Contains(linked, a) {
			t.Errorf("no panel leads to the runbook of %s", a)
		}
	}
	for _, l := range linked {
		if !slices.Contains(alerts, l) {
			t.Errorf("a panel leads to the runbook of %s, which is no alert", l)
		}
	}
}

// TestPanelsDoNotOverlap checks each square of the grid.
func TestPanelsDoNotOverlap(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range panels() {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestWayIsInOrder checks that the first row follows a payload's path.
func TestWayIsInOrder(t *testing.T) {
	var titles []string
	x := -1
	for _, p := range panels()[1:9] {
		if p.GridPos.X <= x {
			t.Errorf("%s is not right of what comes before it", p.Title)
		}
		x = p.GridPos.X
		titles = append(titles, p.Title)
	}
	want := []string{"1 Backlog", "2 Fetch", "3 Batch", "4 Copy in", "5 Compute", "6 Copy out", "7 Publish", "8 Settle"}
	if !slices.Equal(titles, want) {
		t.Errorf("the first row is %q, want %q", titles, want)
	}
}
