package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	autoscaling "k8s.io/api/autoscaling/v2"

	"millrace/internal/memory"
)

// measured configures KEDA to scale by the measured rate.
var measured = values{
	"autoscaling.mode": "keda", "autoscaling.keda.natsServerMonitoringEndpoint": "nats:8222", "podMonitor.enabled": true, "prometheusRule.enabled": true,
	"autoscaling.keda.prometheus.serverAddress": "http://prometheus:9090", "autoscaling.keda.prometheus.authenticationRef": "prometheus",
	"autoscaling.keda.prometheus.metadata": map[string]any{"authModes": "bearer"},
}

// TestGoalWithAKnownRate shows that without Prometheus, the threshold is a pod's throughput in the goal time, or its
// capacity in flight if that is larger.
func TestGoalWithAKnownRate(t *testing.T) {
	const window = 4*4*4<<20 + 6<<20 // bytes in flight in a pod of the default size
	for _, c := range []struct {
		set  values
		want int
	}{
		{nil, 670_720}, // default: 1.25 times the window
		{values{"autoscaling.podRate": 35_000, "autoscaling.payloadBytes": 256}, 2_100_000},
		{values{"autoscaling.podRate": 35_000, "autoscaling.backlogSeconds": 30, "autoscaling.payloadBytes": 256}, 1_050_000},
		{values{"autoscaling.podRate": 0.1, "autoscaling.payloadBytes": 1 << 20}, (window>>20)*5/4 + 1},
		{values{"autoscaling.podRate": 100, "autoscaling.payloadBytes": 1 << 20}, 6000},
		{values{"autoscaling.payloadBytes": 1 << 20}, (window>>20)*5/4 + 1},
		{values{"autoscaling.payloadBytes": 1 << 30}, 2}, // a pod always holds at least one
		{values{"autoscaling.podRate": 10}, 670_720},
		{values{"autoscaling.podRate": 100, "autoscaling.lagThreshold": 7}, 7},
		{values{"autoscaling.podRate": 100, "autoscaling.payloadBytes": 1 << 20, "config.delivery": "exclusive"}, 6000},
	} {
		if got := threshold(t, find[*keda.ScaledObject](t, objects(t, byKEDA.with(c.set)))); got != c.want {
			t.Errorf("%v: the threshold is %d, want %d", c.set, got, c.want)
		}
	}
}

// TestBytesInFlightAreTheWorkers compares the bytes in templates/_window.tpl and in files/rules.yaml with the worker's figures.
func TestBytesInFlightAreTheWorkers(t *testing.T) {
	if perLane := memory.FullPerSlot * memory.SlotsPerLane; perLane != 4 {
		t.Errorf("a pod holds %d full batches per lane in bytes, but the chart and the rules say 4", perLane)
	}
	w := capacityOf(1, 1, 1, 2)
	if batches, consumer := w.InFlight()-capacityOf(1, 1, 0, 2).InFlight(), w.InFlight()-capacityOf(1, 1, 1, 1).InFlight(); batches != 16 || consumer != 12288 {
		t.Errorf("a pod holds %d batches per lane and %d messages per consumer, but the rules say 16 and 12288", batches, consumer)
	}
}

// TestKEDAScalesByTheMeasuredRate shows that one trigger has the number of wanted pods. If the minimum is 0, the other
// triggers start the first pod.
func TestKEDAScalesByTheMeasuredRate(t *testing.T) {
	for delivery, lags := range map[string]int{"shared": 1, "exclusive": 8} {
		one := find[*keda.ScaledObject](t, objects(t, enough.with(measured).with(values{"config.delivery": delivery, "autoscaling.keda.natsServerMonitoringEndpoint": ""})))
		if triggers := one.Spec.Triggers; len(triggers) != 1 || triggers[0].Type != "prometheus" {
			t.Errorf("%s: want one query of Prometheus, have %+v", delivery, triggers)
		}
		scaled := find[*keda.ScaledObject](t, objects(t, enough.with(measured).with(values{"config.delivery": delivery, "autoscaling.minReplicas": 0})))
		if scaled.Spec.Advanced.ScalingModifiers.Formula != "" {
			t.Errorf("%s: a formula would hide the triggers: %q", delivery, scaled.Spec.Advanced.ScalingModifiers.Formula)
		}
		wanted := 0
		for _, trigger := range scaled.Spec.Triggers {
			switch trigger.Type {
			case "prometheus":
				wanted++
				want := map[string]string{
					"serverAddress": "http://prometheus:9090", "threshold": "1", "ignoreNullValues": "false", "authModes": "bearer",
					"query": `max(job:millrace_wanted_pods:max1h{namespace="gpu-jobs",job="gpu-jobs/web-millrace"}) or vector(0)`,
				}
				if !maps.Equal(trigger.Metadata, want) || trigger.AuthenticationRef == nil || trigger.AuthenticationRef.Name != "prometheus" || trigger.MetricType != autoscaling.AverageValueMetricType {
					t.Errorf("%s: %+v, want %v", delivery, trigger, want)
				}
			case "nats-jetstream":
				lags--
				// With this threshold, the lag never requests more than one pod. KEDA multiplies the threshold by 1000.
				if got := trigger.Metadata["lagThreshold"]; got != "1000000000000" {
					t.Errorf("%s: the lag's threshold is %s", delivery, got)
				}
			}
		}
		if wanted != 1 || lags != 0 {
			t.Errorf("%s: %d triggers for the wanted pods, want 1; %d triggers for lags are missing", delivery, wanted, lags)
		}
	}
	never := find[*keda.ScaledObject](t, objects(t, enough.with(measured)))
	if query := never.Spec.Triggers[0].Metadata["query"]; strings.Contains(query, "vector") {
		t.Errorf("with a minimum of one pod, the query %s hides missing metrics", query)
	}
	own := find[*keda.ScaledObject](t, objects(t, enough.with(measured).with(values{"autoscaling.lagThreshold": 5000})))
	if len(own.Spec.Triggers) != 1 || threshold(t, own) != 5000 {
		t.Errorf("with a configured threshold: %+v", own.Spec.Triggers)
	}
}

// TestHPAScalesByTheMeasuredRate shows that the target is one wanted pod of this release per pod.
func TestHPAScalesByTheMeasuredRate(t *testing.T) {
	own := map[string]string{"deployment": "web-millrace"}
	byOthers := values{"prometheusRule.enabled": false, "autoscaling.hpa.metricLabels": map[string]string{"job": "web"}}
	for _, c := range []struct {
		set          values
		name, target string
		labels       map[string]string
	}{
		{byHPA, "millrace_wanted_pods", "1", own},
		{byHPA.with(byOthers), "millrace_wanted_pods", "1", map[string]string{"job": "web"}}, // recorded elsewhere, without the label
		{byHPA.with(values{"autoscaling.hpa.metricName": "pods", "autoscaling.hpa.metricLabels": map[string]string{"a": "b"}}), "pods", "1", map[string]string{"a": "b"}},
		{byHPA.with(values{"autoscaling.lagThreshold": 5000, "autoscaling.hpa.metricName": "millrace_lag"}), "millrace_lag", "5k", own},
		{byHPA.with(values{"autoscaling.lagThreshold": 5000, "autoscaling.hpa.metricName": "mine"}), "mine", "5k", nil}, // from another rule, perhaps for this release only
	} {
		external := find[*autoscaling.HorizontalPodAutoscaler](t, objects(t, c.set)).Spec.Metrics[0].External
		var labels map[string]string
		if external.Metric.Selector != nil {
			labels = external.Metric.Selector.MatchLabels
		}
		if external.Metric.Name != c.name || external.Target.AverageValue.String() != c.target || !maps.Equal(labels, c.labels) {
			t.Errorf("%v: metric %s%v, target %v; want %s%v, %s", c.set, external.Metric.Name, labels, external.Target.AverageValue, c.name, c.labels, c.target)
		}
	}
}

// TestWrongGoalsAreNamed sets wrong values and contradictory values.
func TestWrongGoalsAreNamed(t *testing.T) {
	for at, wrong := range map[string][]any{
		"backlogSeconds": {0, "60s", -1}, "podRate": {-1, "fast"}, "payloadBytes": {-1, "1MiB", 1.5},
		"keda.prometheus.serverAddress": {"prometheus:9090", "http://prometheus:9090/"}, "keda.prometheus.metadata": {map[string]any{"unsafeSsl": true}},
	} {
		for _, value := range wrong {
			if _, err := render(t, byKEDA.with(values{"autoscaling." + at: value})); err == nil || !names(err.Error(), "autoscaling."+at) {
				t.Errorf("%s = %#v: the error does not name it: %v", at, value, err)
			}
		}
	}
	for want, set := range map[string]values{
		"autoscaling.keda.prometheus.serverAddress is set, but the chart doesn't know the label job": measured.with(values{"podMonitor.enabled": false}),
		// This metric of earlier versions would request one pod per message.
		"autoscaling.hpa.metricName is millrace_consumer_pending, a number of messages":                            byHPA.with(values{"autoscaling.hpa.metricName": "millrace_consumer_pending"}),
		"autoscaling.lagThreshold is a number of messages, but autoscaling.hpa.metricName is millrace_wanted_pods": byHPA.with(values{"autoscaling.lagThreshold": 5000}),
		// Without labels, the autoscaler would sum the series of all releases.
		"autoscaling.hpa.metricLabels is empty, so the autoscaler would follow millrace_wanted_pods of every release: set prometheusRule.enabled=true":       {"autoscaling.mode": "hpa"},
		"autoscaling.hpa.metricLabels is empty, so the autoscaler would follow millrace_wanted_pods":                                                         byHPA.with(values{"podMonitor.enabled": false}),
		"autoscaling.hpa.metricLabels is empty, so the autoscaler would follow millrace_lag of every":                                                        byHPA.with(values{"prometheusRule.enabled": false, "autoscaling.lagThreshold": 5000, "autoscaling.hpa.metricName": "millrace_lag"}),
		"autoscaling.hpa.metricLabels is empty, so the autoscaler would follow millrace_consumer_pending of every release: set autoscaling.hpa.metricLabels": byHPA.with(values{"autoscaling.lagThreshold": 5000, "autoscaling.hpa.metricName": "millrace_consumer_pending"}),
	} {
		if _, err := render(t, enough.with(set)); err == nil || !strings.Contains(err.Error(), "1 problem in the values:\n  - "+want) {
			t.Errorf("%v: want %q in %v", set, want, err)
		}
	}
}

// TestNotesSayHowItScales checks the notes that Helm prints after the installation.
func TestNotesSayHowItScales(t *testing.T) {
	for want, set := range map[string]values{
		"1 to 4 pods by keda (60 s of backlog at the measured rate)":                                                        measured,
		"1 to 4 pods by hpa (60 s of backlog at the measured rate)":                                                         byHPA,
		"KEDA adds a pod for 670720 payloads, because it doesn't know how fast a pod is. To scale by\n60 s of backlog, set": byKEDA,
		"needs the recording rule job:millrace_wanted_pods:max1h: set prometheusRule.enabled=true":                          modes["hpa"],
		"The links in alerts lead nowhere yet":                                                                              ruled,
	} {
		if notes := mustRender(t, enough.with(set)).notes; !strings.Contains(notes, want) {
			t.Errorf("%v: no %q in\n%s", set, want, notes)
		}
	}
	for _, set := range []values{measured, byKEDA.with(values{"autoscaling.podRate": 10}), byKEDA.with(values{"autoscaling.lagThreshold": 1_000_000})} {
		if notes := mustRender(t, enough.with(set)).notes; strings.Contains(notes, "KEDA adds a pod for") {
			t.Errorf("%v: the notes say that no rate is known:\n%s", set, notes)
		}
	}
}

// goal is a unit test of the rendered rule with another goal and factor. It has 2,000 messages per second of 256 bytes,
// and a lag of 600,000.
const goal = `
rule_files: [rules.yaml]
evaluation_interval: 1m
group_eval_order: [millrace.shares, millrace.alerts]
tests:
  - interval: 1m
    input_series:
%s
    promql_expr_test:
      - expr: round(max(job:millrace_wanted_pods:max1h{deployment="web-millrace"}), 0.001)
        eval_time: 80m
        exp_samples: [{labels: '{}', value: %d}]
      - expr: count(job:millrace_wanted_pods:max1h)
        eval_time: 80m
        exp_samples: [{labels: '{}', value: 1}]
      - expr: count by (deployment) (job:millrace_lag:max)
        eval_time: 80m
        exp_samples: [{labels: '{deployment="web-millrace"}', value: 1}]
`

// TestBacklogGoal checks the wanted pods for several goals. Another release's lag must have no effect.
func TestBacklogGoal(t *testing.T) {
	needPromtool(t)
	for seconds, pods := range map[int]int{300: 1, 150: 2, 100: 3} {
		var series strings.Builder
		for job, factor := range map[string]int{"gpu-jobs/web-millrace": 1, "gpu-jobs/other": 50} {
			for metric, counts := range map[string]string{
				`millrace_consumer_pending`: fmt.Sprintf("%dx90", 580_000*factor), `millrace_consumer_ack_pending`: "20000x90",
				`millrace_messages_total{outcome="published"}`: "0+120000x90",
				`millrace_payload_bytes_total{direction="in"}`: "0+30720000x90",
				`millrace_lanes{device="GPU-1",state="free"}`:  "1x90",
				`millrace_batch_limit_payloads`:                "256x90",
				`millrace_batch_limit_bytes`:                   "1048576x90",
				`millrace_partitions_owned`:                    "0x90",
			} {
				name, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
				fmt.Fprintf(&series, "      - {series: '%s{namespace=\"gpu-jobs\",pod=\"w-0\",job=\"%s\",%s}', values: '%s'}\n", name, job, labels, counts)
			}
		}
		dir := t.TempDir()
		writeRules(t, dir, enough.with(measured).with(values{"autoscaling.backlogSeconds": seconds}))
		if err := os.WriteFile(filepath.Join(dir, "test.yaml"), fmt.Appendf(nil, goal, series.String(), pods), 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, dir, "test.yaml")
	}
}

// TestGoalReachesTheRule checks the goal and the factor in the recording rule.
func TestGoalReachesTheRule(t *testing.T) {
	for _, group := range find[*monitoring.PrometheusRule](t, objects(t, enough.with(measured).with(values{"autoscaling.backlogSeconds": 7.5, "autoscaling.lagFactor": 3}))).Spec.Groups {
		for _, r := range group.Rules {
			if r.Record != "job:millrace_wanted_pods:max1h" {
				continue
			}
			if got := r.Expr.StrVal; strings.Count(got, "(7.5 * ") != 1 || strings.Count(got, " 3 * ") != 2 {
				t.Errorf("the goal is not in %s", got)
			}
			return
		}
	}
	t.Error("there is no rule for the wanted pods")
}
