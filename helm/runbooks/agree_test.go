package runbooks

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// refuted lists wrong advice from earlier pages, with the reason.
var refuted = map[string]string{
	`MILLRACE_NATS_CONNECTIONS=[1-9]|nats\.connections=[1-9]`: "the number of connections hardly matters (docs/streams.md)",
	`several connections, a faster`:                           "the number of connections hardly matters (docs/streams.md)",
	`must be built from the same commit`:                      "library and worker state the versions that they work with (adr/0040)",
	`ulimit -l.{0,40}or the pod's memory limit`:               "a worker that can't pin its memory ends at startup",
	`window of the result stream longer than AckWait times`:   "40 s are enough, because older inputs are looked up (docs/exactly-once.md)",
	`logs this at most once a second`:                         "repeated lines are summed up (docs/operations.md)",
	`--reuse-values`:                                          "it loses new defaults: use --reset-then-reuse-values",
}

// TestRefutedAdviceStaysAway searches all pages for operators.
func TestRefutedAdviceStaysAway(t *testing.T) {
	for _, p := range read(t, append(incident, "operations.md", "guarantees.md", "exactly-once.md", "streams.md", "alerts.md", "metrics.md", "kubernetes.md", "security.md")...) {
		text := strings.Join(strings.Fields(p.text), " ")
		for advice, reason := range refuted {
			if found := regexp.MustCompile(advice).FindString(text); found != "" {
				t.Errorf("%s says %q, but %s", p.name, found, reason)
			}
		}
	}
}

// TestPagesAgreeWithTheChart compares figures in docs/operations.md with the chart's defaults.
func TestPagesAgreeWithTheChart(t *testing.T) {
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Config struct {
			DrainTimeout string `yaml:"drainTimeout"`
		}
		Margin    int `yaml:"terminationGraceMarginSeconds"`
		Resources struct {
			Requests struct{ CPU, Memory string }
			Limits   struct{ Memory string }
		}
	}
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	drain, err := time.ParseDuration(v.Config.DrainTimeout)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(read(t, "operations.md")[0].text), " ")
	for _, want := range []string{
		fmt.Sprintf("grace period to %d s", int(drain.Seconds())+v.Margin),
		fmt.Sprintf("`terminationGraceMarginSeconds`, which is %d", v.Margin),
		fmt.Sprintf("%s cores (the chart's default)", v.Resources.Requests.CPU),
		fmt.Sprintf("The chart requests %s, with a limit of %s", strings.Replace(v.Resources.Requests.Memory, "Gi", " GiB", 1), strings.Replace(v.Resources.Limits.Memory, "Gi", " GiB", 1)),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("operations.md doesn't say %q, as the chart's values do", want)
		}
	}
}
