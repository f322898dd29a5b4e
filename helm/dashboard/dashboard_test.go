package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/helm/exposed"
	"millrace/helm/runbooks"
)

const (
	file        = "../millrace/files/dashboard.json"
	rulesFile   = "../millrace/files/rules.yaml"
	metricsFile = "../../docs/metrics.md"
)

// board contains the parts of the dashboard that the tests check.
type board struct {
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Query                  any
			Datasource             source
		}
	}
	Annotations struct {
		List []struct {
			Name, Expr string
			Datasource source
		}
	}
}

type panel struct {
	ID          int
	Type        string
	Title       string
	GridPos     struct{ H, W, X, Y int }
	Datasource  source
	Links       []struct{ URL string }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

// source is a data source. chosen is the data source that the dashboard's variable selects.
type source struct{ Type, UID string }

var chosen = source{"prometheus", "${datasource}"}

const width = 24

func read(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(b.Panels) == 0 {
		t.Fatalf("%s has no panels", file)
	}
	return b
}

// TestVariables shows that the runbook links have the same prefix as in the rules, and every variable queries the
// chosen data source.
func TestVariables(t *testing.T) {
	address := false
	for _, v := range read(t).Templating.List {
		address = address || v.Name == "runbooks" && v.Query == runbooks.Address
		if v.Type == "query" && v.Datasource != chosen {
			t.Errorf("variable %s queries %v, want %v", v.Name, v.Datasource, chosen)
		}
	}
	if !address {
		t.Errorf("no variable runbooks has the address %s", runbooks.Address)
	}
}

// inGrafana replaces variables as Grafana does before it queries Prometheus.
var inGrafana = strings.NewReplacer(
	"$__rate_interval", "5m", "$__range", "1h", "$namespace", ".*", "$pod", ".*", "$device", ".*",
)

// queries returns all queries of the dashboard by panel title.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	b, all := read(t), map[string][]string{}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	values := regexp.MustCompile(`^label_values\((.+), \w+\)$`)
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := values.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("variable %s: %q is not of the form label_values(SELECTOR, LABEL)", v.Name, v.Definition)
		}
		all["variable "+v.Name] = []string{m[1]}
	}
	for _, a := range b.Annotations.List {
		all["annotation "+a.Name] = []string{a.Expr}
		if a.Datasource != chosen {
			t.Errorf("annotation %s queries %v, want %v", a.Name, a.Datasource, chosen)
		}
	}
	return all
}

// ruleNames returns the names of all rules of one kind, either recording rules or alerts.
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
			expr = inGrafana.Replace(expr)
			if strings.Contains(strings.ReplaceAll(expr, `"$1"`, ""), "$") {
				t.Errorf("%s: a variable doesn't exist: %s", who, expr)
			}
			for _, problem := range metrics.Check(expr) {
				t.Errorf("%s: %s", who, problem)
			}
		}
	}
}

// indirect lists metrics that no panel uses directly, with the reason. Without a reason, a recording rule on the
// dashboard uses the metric.
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
			t.Errorf("neither a panel nor a recording rule shows %s", name)
		}
	}
}

// selected selects the workers of the chosen namespace. Nearly every query also has a pod selector.
const selected = `namespace=~"$namespace"`

func TestPanels(t *testing.T) {
	var linked []string
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range read(t).Panels {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("%s: another panel has the same title or number", p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > width {
			t.Errorf("%s: outside the grid: %+v", p.Title, g)
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Datasource != chosen {
			t.Errorf("%s has no query, or the data source %v, want %v", p.Title, p.Datasource, chosen)
		}
		if p.FieldConfig.Defaults.Unit == "" && p.Type != "table" && p.Type != "heatmap" {
			t.Errorf("%s has no unit", p.Title)
		}
		p.checkTargets(t)
		for _, l := range p.Links {
			linked = append(linked, strings.TrimSuffix(strings.TrimPrefix(l.URL, "${runbooks}/"), ".md"))
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

// checkTargets checks the letter, legend and data source of each query of a panel. Each query must show only the chosen
// workers.
func (p panel) checkTargets(t *testing.T) {
	for i, q := range p.Targets {
		if want := string(rune('A' + i)); q.RefID != want || q.Datasource != chosen {
			t.Errorf("%s: a query has the letter %s and the data source %v, want %s and %v: %s", p.Title, q.RefID, q.Datasource, want, chosen, q.Expr)
		}
		if q.LegendFormat == "" && p.Type != "table" {
			t.Errorf("%s: a query without a legend: %s", p.Title, q.Expr)
		}
		if !strings.Contains(q.Expr, selected) && !strings.Contains(q.Expr, "ALERTS{") {
			t.Errorf("%s: a query without the selector %s: %s", p.Title, selected, q.Expr)
		}
	}
}

// TestPanelsDoNotOverlap checks each cell of the grid.
func TestPanelsDoNotOverlap(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range read(t).Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestWayIsInOrder checks that the panels of the first row follow a payload's path.
func TestWayIsInOrder(t *testing.T) {
	var titles []string
	x := -1
	for _, p := range read(t).Panels[1:9] {
		if p.GridPos.X <= x {
			t.Errorf("%s is not to the right of the previous panel", p.Title)
		}
		x = p.GridPos.X
		titles = append(titles, p.Title)
	}
	want := []string{"1 Backlog", "2 Fetch", "3 Batch", "4 Copy in", "5 Compute", "6 Copy out", "7 Publish", "8 Settle"}
	if !slices.Equal(titles, want) {
		t.Errorf("the first row is %q, want %q", titles, want)
	}
}
