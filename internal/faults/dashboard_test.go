package faults

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

const dashboardFile = "../../helm/millrace/files/dashboard.json"

// panels maps the titles of the dashboard's panels to their queries, with all values selected.
func panels(t testing.TB) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	chosen := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$pod", ".*", "$device", ".*")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], chosen.Replace(target.Expr))
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no panels with queries", dashboardFile)
	}
	return all
}

// noNews lists the panels that have data only if there is a problem, or with a filter or a stateful operator.
var noNews = []string{
	"Firing alerts", "Third-last fault of an operator", "Inputs kept for a consumer", "Records left out per second, by condition",
	"Dead letters per second, by reason", "Records decided per second, by outcome", "Memory of states", "Records in states", "Fullest state",
	"Log of states, bytes per second", "Replayed log, bytes per second", "Partitions with a state", "Young generation",
	"Size of the logs of states", "Failed removals from logs of states, in 15 minutes",
}

// wantDashboardAnswered waits until every panel has data. For Prometheus, a metric that doesn't exist is the same as a
// metric without samples, so a mistake in a query gives an empty panel.
func (r *rig) wantDashboardAnswered(prom *prometheus, p pace, wait time.Duration) {
	r.t.Helper()
	var missing []string
	all := panels(r.t)
	answered := func() bool {
		missing = nil
		for title, exprs := range all {
			for _, expr := range exprs {
				n, err := prom.query(p.scale(r.t, expr))
				quiet := strings.Contains(strings.Join(noNews, "\n"), title)
				if err != nil {
					missing = append(missing, title+": "+err.Error())
				} else if n == 0 && !quiet {
					missing = append(missing, title+" shows nothing: "+expr)
				}
			}
		}
		return len(missing) == 0
	}
	if !r.comesWithin(wait, answered) {
		r.t.Fatalf("panels without an answer:\n%s", strings.Join(missing, "\n"))
	}
}
