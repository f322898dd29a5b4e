package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// noWorkers is a unit test of MillraceNoWorkers. Its arguments are the workers' series, the wanted numbers of pods, and
// the checks.
const noWorkers = `
rule_files: [rules.yaml]
evaluation_interval: 1m
group_eval_order: [millrace.shares, millrace.alerts]
tests:
  - interval: 1m
    input_series:
      - series: 'millrace_build_info{namespace="gpu-jobs",pod="w-0",job="gpu-jobs/web-millrace",version="v1"}'
        values: '%s'
      - series: 'kube_deployment_spec_replicas{namespace="gpu-jobs",deployment="web-millrace",job="kube-state-metrics"}'
        values: '%s'
      # Another release in the same namespace, and one of the same name in another.
      - series: 'millrace_build_info{namespace="gpu-jobs",pod="x-0",job="gpu-jobs/other",version="v1"}'
        values: '1x3000'
      - series: 'millrace_build_info{namespace="other",pod="w-0",job="other/web-millrace",version="v1"}'
        values: '1x3000'
      - series: 'kube_deployment_spec_replicas{namespace="gpu-jobs",deployment="other",job="kube-state-metrics"}'
        values: '0x3000'
    promql_expr_test:
%s
`

// firing is a check of noWorkers at one minute.
const firing = `      - expr: count by (namespace, job, severity) (ALERTS{alertname="MillraceNoWorkers",alertstate="firing"})
        eval_time: %dm
        exp_samples: [%s]
`

const itFires = `{labels: '{namespace="gpu-jobs",job="gpu-jobs/web-millrace",severity="critical"}', value: 1}`

// TestNoWorkers tests the alert for several values and states of the cluster.
func TestNoWorkers(t *testing.T) {
	needPromtool(t)
	toZero := values{"autoscaling.mode": "keda", "autoscaling.keda.natsServerMonitoringEndpoint": "nats:8222", "autoscaling.minReplicas": 0}
	for what, c := range map[string]struct {
		set             values
		workers, wanted string
		from            int // minute at which the alert fires; 0 means never
	}{
		"never came up":                         {nil, "_x3000", "1x3000", 15},
		"never came up, no kube-state-metrics":  {nil, "_x3000", "_x3000", 15},
		"gone after ten minutes":                {nil, "1x9 stale", "1x3000", 25},
		"gone for longer than a day":            {nil, "1x9 stale", "1x3000", 1600},
		"the Deployment is gone too":            {nil, "1x9 stale", "1x9 stale", 25},
		"there":                                 {nil, "1x3000", "1x3000", 0},
		"scaled to zero by hand":                {nil, "1x9 stale", "1x9 0x3000", 0},
		"KEDA: scaled to zero":                  {toZero, "1x9 stale", "1x9 0x3000", 0},
		"KEDA: Pending":                         {toZero, "_x3000", "0x9 1x3000", 25},
		"KEDA: gone, no kube-state-metrics":     {toZero, "1x9 stale", "_x3000", 0},
		"no replicas by values":                 {values{"replicaCount": 0}, "_x3000", "_x3000", 0},
		"no replicas by values, then scaled up": {values{"replicaCount": 0}, "_x3000", "0x9 1x3000", 25},
		"a rollout of 14 minutes":               {nil, "1x9 stale _x12 1x3000", "1x3000", 0},
		"an hour by values":                     {values{"prometheusRule.alerts.MillraceNoWorkers.for": "1h"}, "_x3000", "1x3000", 60},
	} {
		t.Run(what, func(t *testing.T) {
			var checks strings.Builder
			if c.from == 0 {
				for _, minute := range []int{14, 26, 100} {
					fmt.Fprintf(&checks, firing, minute, "")
				}
			} else {
				fmt.Fprintf(&checks, firing, c.from+1, itFires)
				if c.from < 1000 {
					fmt.Fprintf(&checks, firing, c.from-1, "")
				}
			}
			dir := t.TempDir()
			writeRules(t, dir, ruled.with(values{"podMonitor.enabled": true}).with(c.set))
			if err := os.WriteFile(filepath.Join(dir, "test.yaml"), fmt.Appendf(nil, noWorkers, c.workers, c.wanted, checks.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			promtool(t, dir, "test.yaml")
		})
	}
}
