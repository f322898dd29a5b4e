package test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// ruled enables the rules without a monitor. The rules then apply to all workers.
var ruled = enough.with(values{"prometheusRule.enabled": true})

// needPromtool returns the path of promtool. Without promtool, the test skips with a message in capitals, or fails with
// MILLRACE_REQUIRE_PROMETHEUS=1.
func needPromtool(t *testing.T) string {
	t.Helper()
	binary, err := exec.LookPath("promtool")
	if err == nil {
		return binary
	}
	message := fmt.Sprintf("NOT TESTED WITH PROMTOOL: %v (Debian's package prometheus has it)", err)
	if os.Getenv("MILLRACE_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf("%s (MILLRACE_REQUIRE_PROMETHEUS=1 MAKES THIS A FAILURE)", message)
	}
	t.Skipf("%s (SET MILLRACE_REQUIRE_PROMETHEUS=1 TO FAIL INSTEAD)", message)
	return ""
}

// alertsOf returns the alerts of the PrometheusRule by name.
func alertsOf(t *testing.T, set values) map[string]monitoring.Rule {
	t.Helper()
	all := map[string]monitoring.Rule{}
	for _, group := range find[*monitoring.PrometheusRule](t, objects(t, set)).Spec.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" {
				all[r.Alert] = r
			}
		}
	}
	return all
}

// writeRules renders the PrometheusRule and writes its rules for promtool.
func writeRules(t *testing.T, dir string, set values) {
	t.Helper()
	text, err := yaml.Marshal(find[*monitoring.PrometheusRule](t, objects(t, set)).Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// promtool runs unit tests against the rules in the same folder.
func promtool(t *testing.T, dir string, tests ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), needPromtool(t), append([]string{"test", "rules"}, tests...)...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOwnRulesPassTheUnitTests runs the unit tests of helm/rules against a release's rules with a monitor, which cover
// only the release's series. It adapts the tests' job and namespace.
func TestOwnRulesPassTheUnitTests(t *testing.T) {
	needPromtool(t)
	dir := t.TempDir()
	writeRules(t, dir, ruled.with(values{"podMonitor.enabled": true}))
	names := strings.NewReplacer("../millrace/files/rules.yaml", "rules.yaml", `namespace="gpu"`, `namespace="gpu-jobs"`, "namespace: gpu\n", "namespace: gpu-jobs\n",
		"gpu/millrace", "gpu-jobs/web-millrace")
	files, err := filepath.Glob("../rules/Millrace*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no unit tests: %v", err)
	}
	var tests []string
	for _, file := range files {
		name := filepath.Base(file)
		if name == "MillraceNoWorkers.yaml" { // its expression differs: see TestNoWorkers
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(names.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		tests = append(tests, name)
	}
	promtool(t, dir, tests...)
}

// millraceSeries matches a metric or recorded series of the worker in an expression, with its selector.
var millraceSeries = regexp.MustCompile(`(?:[a-z_]+:)?millrace_[a-z0-9_]+(?::[a-z0-9_]+)?(\{[^}]*\})?`)

// TestRulesSeeTheirReleaseAlone checks that every series in every rule is restricted to the release, for each kind of
// scraping.
func TestRulesSeeTheirReleaseAlone(t *testing.T) {
	for job, set := range map[string]values{
		"gpu-jobs/web-millrace": {"podMonitor.enabled": true},
		"web-millrace-metrics":  {"serviceMonitor.enabled": true},
		"gpus":                  {"podMonitor.enabled": true, "prometheusRule.job": "gpus"},
	} {
		seen := 0
		for _, group := range find[*monitoring.PrometheusRule](t, objects(t, ruled.with(set))).Spec.Groups {
			for _, r := range group.Rules {
				for _, series := range millraceSeries.FindAllStringSubmatch(r.Expr.String(), -1) {
					seen++
					if !strings.HasPrefix(series[1], `{namespace="gpu-jobs",job="`+job+`"`) {
						t.Errorf("%s%s: %s is not restricted to job %s", r.Alert, r.Record, series[0], job)
					}
				}
			}
		}
		if seen < 50 {
			t.Errorf("only %d series in the rules of job %s, want more than 50", seen, job)
		}
	}
}

// TestAlertsTakeTheirValues sets every key of every alert to a value other than the default.
func TestAlertsTakeTheirValues(t *testing.T) {
	defaults := loaded(t).Values["prometheusRule"].(map[string]any)["alerts"].(map[string]any)
	before := alertsOf(t, ruled)
	if got, want := slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(defaults)); !slices.Equal(got, want) {
		t.Fatalf("the alerts are %v, but the values have %v", got, want)
	}
	const number = "0.4711"
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		at := "prometheusRule.alerts." + name + "."
		for key, standard := range defaults[name].(map[string]any) {
			switch key {
			case "enabled":
				if _, ok := alertsOf(t, ruled.with(values{at + key: false}))[name]; ok {
					t.Errorf("%s exists although it is disabled", name)
				}
			case "severity":
				if got := alertsOf(t, ruled.with(values{at + key: "page"}))[name]; got.Labels["severity"] != "page" || len(got.Labels) != len(before[name].Labels) {
					t.Errorf("%s: labels %v, want severity page", name, got.Labels)
				}
			case "for":
				if got := alertsOf(t, ruled.with(values{at + key: "7m"}))[name]; got.For == nil || *got.For != "7m" {
					t.Errorf("%s: for %v, want 7m", name, got.For)
				}
				if got := alertsOf(t, ruled.with(values{at + key: "0s"}))[name]; got.For != nil {
					t.Errorf("%s: for %s, want none", name, *got.For)
				}
			default:
				was, got := before[name].Expr.StrVal, alertsOf(t, ruled.with(values{at + key: 0.4711}))[name].Expr.StrVal
				// With the default as the number, the expression must equal the file's.
				if !strings.Contains(got, " "+number) || strings.ReplaceAll(got, " "+number, fmt.Sprintf(" %v", standard)) != was {
					t.Errorf("%s%s=%s: %s", at, key, number, got)
				}
			}
		}
	}
}

// TestAllAlertsOff checks that the recording rules remain, because the dashboard needs them.
func TestAllAlertsOff(t *testing.T) {
	off := ruled.with(nil)
	for name := range alertsOf(t, ruled) {
		off["prometheusRule.alerts."+name+".enabled"] = false
	}
	if groups := find[*monitoring.PrometheusRule](t, objects(t, off)).Spec.Groups; len(groups) != 1 || groups[0].Name != "millrace.shares" {
		t.Errorf("%d groups are left, want only millrace.shares", len(groups))
	}
}

// changedValues is a unit test of alerts with a changed threshold, duration and severity.
const changedValues = `
rule_files: [rules.yaml]
evaluation_interval: 1m
group_eval_order: [millrace.shares, millrace.alerts]
tests:
  - interval: 1m
    input_series:
      - series: 'millrace_nats_reconnects_total{namespace="gpu-jobs",pod="w-0",job="gpu-jobs/web-millrace"}'
        values: '0+0.2x60'
      - series: 'millrace_device_fallback{namespace="gpu-jobs",pod="w-0",job="gpu-jobs/web-millrace"}'
        values: '1x60'
      - series: 'millrace_device_fallback{namespace="gpu-jobs",pod="v-0",job="gpu-jobs/other"}'
        values: '1x60'
    promql_expr_test:
      - expr: count by (severity) (ALERTS{alertname="MillraceReconnectStorm",alertstate="firing"})
        eval_time: 30m
        exp_samples: [{labels: '{severity="page"}', value: 1}]
      - expr: count(ALERTS{alertname="MillraceDeviceFallback",alertstate="firing"}) or vector(0)
        eval_time: 19m
        exp_samples: [{labels: '{}', value: 0}]
      - expr: count(ALERTS{alertname="MillraceDeviceFallback",alertstate="firing"})
        eval_time: 21m
        exp_samples: [{labels: '{}', value: 1}]
`

func TestChangedAlertsFire(t *testing.T) {
	needPromtool(t)
	dir := t.TempDir()
	writeRules(t, dir, ruled.with(values{
		"podMonitor.enabled": true,
		"prometheusRule.alerts.MillraceReconnectStorm.threshold":        2.5,
		"prometheusRule.alerts.MillraceReconnectStorm.severity":         "page",
		"prometheusRule.alerts.MillraceDeviceFallback.for":              "20m",
		"prometheusRule.alerts.MillraceBacklogGrowingLanesFull.enabled": false,
	}))
	if err := os.WriteFile(filepath.Join(dir, "test.yaml"), []byte(changedValues), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "test.yaml")
}

// TestWrongAlertsAreNamed sets wrong values of alerts. The error must name each value.
func TestWrongAlertsAreNamed(t *testing.T) {
	for at, wrong := range map[string][]any{
		"job":                                                 {`a"b`, 1},
		"alerts.MillraceWorkerDown.for":                       {"10", 600, "10 m", "30s1m", ""},
		"alerts.MillraceWorkerDown.threshold":                 {1}, // the alert has no threshold
		"alerts.MillraceWorkerDwon":                           {map[string]any{"enabled": false}},
		"alerts.MillraceRedeliveries.severity":                {"", "two words", 1},
		"alerts.MillraceRedeliveries.threshold":               {"1%", -0.1},
		"alerts.MillraceRedeliveries.enabled":                 {"no"},
		"alerts.MillraceRestartsDeviceLost.thresholdSixHours": {-1},
	} {
		for _, value := range wrong {
			_, err := render(t, enough.with(values{"prometheusRule." + at: value}))
			if err == nil || !names(err.Error(), "prometheusRule."+at) {
				t.Errorf("%s = %#v: the error does not name it: %v", at, value, err)
			}
		}
	}
}
