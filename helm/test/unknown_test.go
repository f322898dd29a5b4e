package test

import (
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// unknown lists values that the chart doesn't have, with the chart's error for each.
var unknown = []struct {
	at    string
	value any
	want  string
}{
	{"replicaCont", 3, "did you mean replicaCount?"},
	{"replicacount", 3, "did you mean replicaCount?"},
	{"replica-count", 3, "did you mean replicaCount?"},
	{"lanes", 4, "did you mean config.lanes?"},
	{"config.lane", 4, "did you mean config.lanes?"},
	{"config.batchSize", "1MiB", "did you mean config.batchBytes?"},
	{"config.batch_payloads", 1, "did you mean config.batchPayloads?"},
	{"config.batch.bytes", "1MiB", "did you mean config.batchBytes?"},
	{"config.maxAckPendign", 1, "did you mean config.maxAckPending?"},
	{"stream.retentoin", "limits", "did you mean config.streamRetention?"},
	{"natsUrl", "nats://nats:4222", "did you mean nats.url?"},
	{"nats.tls.exitingSecret", "a", "did you mean nats.tls.existingSecret?"},
	{"gpus", 1, "did you mean gpu?"},
	{"prometheusRule.alerts.MillraceDeadLetters.treshold", 1, "did you mean prometheusRule.alerts.MillraceDeadLetters.threshold?"},
	{"prometheusRule.alerts.MillraceDeadLeters.threshold", 1, "did you mean prometheusRule.alerts.MillraceDeadLetters.threshold?"},
	{"lifecycle.prestop.sleep", 1, "did you mean lifecycle.preStop.sleep?"},
	{"dnsConfig.nameserver", []string{"10.0.0.1"}, "did you mean dnsConfig.nameservers?"},
	{"autoscaling.keda.prometheus.address", "http://a", "autoscaling.keda.prometheus has authenticationRef, metadata, serverAddress"},
	{"enabled", true, "the chart has affinity, autoscaling, "}, // many maps have this key
	{"probes.startup.path", nil, "probes.startup has failureThreshold, periodSeconds"},
}

// TestUnknownValuesAreNamed shows that helm template and helm lint name each value and a likely alternative.
func TestUnknownValuesAreNamed(t *testing.T) {
	for _, c := range unknown {
		line := c.at + " is not a value of this chart: " + c.want
		_, err := render(t, enough.with(values{c.at: c.value}))
		if err == nil || !strings.Contains(err.Error(), "1 problem in the values:\n  - "+line) {
			t.Errorf("helm template: want %q in\n%v", line, err)
		}
	}
	for _, c := range []int{0, 5, 9} {
		line := unknown[c].at + " is not a value of this chart: " + unknown[c].want
		result := lint.AllWithKubeVersion(chartDir, enough.with(values{unknown[c].at: unknown[c].value}).parsed(t), "gpu-jobs", oldest)
		if !slices.ContainsFunc(result.Messages, func(m support.Message) bool {
			return m.Severity == support.ErrorSev && strings.Contains(m.Err.Error(), line)
		}) {
			t.Errorf("helm lint: want %q in\n%v", line, result.Messages)
		}
	}
}

// TestUnknownValuesAreNamedTogether shows that the first error names all unknown values, even if required values are missing.
func TestUnknownValuesAreNamedTogether(t *testing.T) {
	_, err := render(t, values{"replicaCont": 3, "config.lane": 4, "config.nothing": map[string]any{"like": 1}})
	want := "3 problems in the values:\n" +
		"  - replicaCont is not a value of this chart: did you mean replicaCount?\n" +
		"  - config.lane is not a value of this chart: did you mean config.lanes?\n" +
		"  - config.nothing.like is not a value of this chart: config has ack, "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("want %s in\n%v", want, err)
	}
}

// TestFreeMapsTakeAnyName shows that labels, annotations, selectors and global may have any key. A parent chart may add
// keys to global.
func TestFreeMapsTakeAnyName(t *testing.T) {
	set := enough.with(modes["additions"])
	for _, at := range []string{
		"nodeSelector", "commonLabels", "deploymentAnnotations", "podAnnotations", "podLabels", "serviceAccount.annotations", "podMonitor.labels",
		"autoscaling.keda.prometheus.metadata", "autoscaling.hpa.metricLabels", "dashboard.annotations", "global.replicaCont",
		"podSecurityContext.replicaCont", "securityContext.replicaCont", "affinity.replicaCont",
	} {
		set = set.with(values{at: map[string]any{"of-" + strings.ReplaceAll(at, ".", "-"): "3"}})
	}
	mustRender(t, set)
}
