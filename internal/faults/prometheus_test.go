package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest/natstest"
)

const rulesFile = "../../helm/millrace/files/rules.yaml"

// needPrometheus returns the path of Prometheus. If Prometheus isn't installed, it skips the test with a message in
// capitals, or fails it if MILLRACE_REQUIRE_PROMETHEUS=1.
func needPrometheus(t *testing.T) (binary string) {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err == nil {
		return binary
	}
	message := fmt.Sprintf("NOT TESTED WITH A REAL PROMETHEUS: %v (Debian's package prometheus has it)", err)
	if os.Getenv("MILLRACE_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf("%s (MILLRACE_REQUIRE_PROMETHEUS=1 MAKES THIS A FAILURE)", message)
	}
	t.Skipf("%s (SET MILLRACE_REQUIRE_PROMETHEUS=1 TO FAIL INSTEAD)", message)
	return ""
}

// pace sets the speed of time for the rules. With unchanged rules, the short test would wait half an hour for their
// windows.
type pace struct {
	name   string
	unit   string        // the time unit that replaces a minute in windows and waits
	scrape time.Duration // interval between scrapes, and between evaluations
}

var (
	hurried = pace{"a minute is a second", "s", 250 * time.Millisecond}
	asItIs  = pace{"as users have them", "m", 5 * time.Second}
)

// duration matches a whole number of minutes or hours in a rule. It matches only at the beginning of a word, and so
// doesn't match names such as ratio_rate5m.
var duration = regexp.MustCompile(`\b(\d+)([mh])\b`)

// rules returns the rules, with windows and waits scaled to the pace.
func (p pace) rules(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	return p.scale(t, string(text))
}

// scale converts minutes and hours in PromQL to the pace's unit.
func (p pace) scale(t testing.TB, text string) string {
	t.Helper()
	return duration.ReplaceAllStringFunc(text, func(s string) string {
		m := duration.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if m[2] == "h" {
			n *= 60
		}
		return strconv.Itoa(n) + p.unit
	})
}

// prometheus is a Prometheus server with Millrace's rules.
type prometheus struct {
	*process
	url  string
	http *http.Client
}

const prometheusConfig = `global: { scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s }
rule_files: [rules.yaml]
scrape_configs:
  - job_name: millrace
    static_configs: [{ targets: ["%[2]s"], labels: { namespace: gpu, pod: worker-0 } }]
  - job_name: kube-state-metrics
    honor_labels: true
    static_configs: [{ targets: ["%[3]s"] }]
`

// watch starts Prometheus, which scrapes a worker and a page that replaces the cluster's exporters.
func (r *rig) watch(binary string, p pace, worker, cluster string) *prometheus {
	r.t.Helper()
	for name, text := range map[string]string{
		"prometheus.yaml": fmt.Sprintf(prometheusConfig, p.scrape, worker, cluster),
		"rules.yaml":      p.rules(r.t),
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	addr := holdPort(r.t)
	prom := &prometheus{
		process: start(r.t, r.dir, "prometheus", binary, os.Environ(), "--config.file=prometheus.yaml",
			"--storage.tsdb.path=series", "--web.listen-address="+addr),
		url: "http://" + addr, http: &http.Client{Timeout: natstest.Patience},
	}
	r.until("Prometheus is ready", func() bool { return prom.ask("/-/ready", nil) == nil })
	return prom
}

// ask requests a page. If into is not nil, it decodes the data of the response into it.
func (p *prometheus) ask(path string, into any) error {
	answer, err := p.http.Get(p.url + path)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // the body was read
	if into == nil && answer.StatusCode == http.StatusOK {
		return nil
	}
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return fmt.Errorf("%s: %s: %w", path, answer.Status, err)
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", path, body.Error)
	}
	return json.Unmarshal(body.Data, into)
}

func (p *prometheus) query(expr string) (series int, err error) {
	values, err := p.values(expr)
	return len(values), err
}

// values returns the current values of all series in an expression's result, in the text format of Prometheus.
func (p *prometheus) values(expr string) ([]string, error) {
	var data struct{ Result []struct{ Value [2]any } }
	if err := p.ask("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	var values []string
	for _, series := range data.Result {
		values = append(values, fmt.Sprint(series.Value[1]))
	}
	return values, nil
}

func (p *prometheus) isFiring(alert string) bool {
	n, err := p.query(fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert))
	return err == nil && n > 0
}

func (p *prometheus) firing() ([]string, error) {
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.ask("/api/v1/alerts", &data); err != nil {
		return nil, err
	}
	var names []string
	for _, a := range data.Alerts {
		if name := a.Labels["alertname"]; a.State == "firing" && !strings.Contains(strings.Join(names, " "), name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// rule is a rule in the server's response.
type rule struct {
	Name, Type, Health, LastError string
}

func (p *prometheus) rules() ([]rule, error) {
	var data struct{ Groups []struct{ Rules []rule } }
	if err := p.ask("/api/v1/rules", &data); err != nil {
		return nil, err
	}
	var all []rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, nil
}
