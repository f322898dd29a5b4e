package test

import (
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// TestGraceOutlastsTheDrain compares the grace period with the drain timeout. After the timeout, giving back unfinished
// messages takes another second.
func TestGraceOutlastsTheDrain(t *testing.T) {
	for _, drain := range []string{"25s", "1s", "1m", "1m30s", "2.5s", "1500ms", "59m59.001s", "1h", "0.5m", "90s"} {
		for _, margin := range []int64{2, 10, 60} {
			length, err := time.ParseDuration(drain)
			if err != nil {
				t.Fatal(err)
			}
			pod := workerPod(t, objects(t, enough.with(values{"config.drainTimeout": drain, "terminationGraceMarginSeconds": margin})))
			grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
			if beyond := grace - length - time.Duration(margin)*time.Second; beyond < 0 || beyond >= time.Second {
				t.Errorf("drain %s, margin %d s: a grace period of %s, want their sum rounded up", drain, margin, grace)
			}
		}
	}
}

// TestProbesAskThePipeline shows that the probes are HTTP requests, which need neither the GPU nor a shell. The image
// has no shell.
func TestProbesAskThePipeline(t *testing.T) {
	c := workerPod(t, objects(t, enough.with(values{"http.port": 9000}))).Containers[0]
	if c.Ports[0].ContainerPort != 9000 || environment(c)["MILLRACE_HTTP_ADDR"] != ":9000" {
		t.Errorf("port %d, MILLRACE_HTTP_ADDR=%s", c.Ports[0].ContainerPort, environment(c)["MILLRACE_HTTP_ADDR"])
	}
	for _, probe := range []struct {
		name, path string
		asks       *core.Probe
	}{{"startup", "/healthz", c.StartupProbe}, {"liveness", "/healthz", c.LivenessProbe}, {"readiness", "/readyz", c.ReadinessProbe}} {
		get := probe.asks.HTTPGet
		if get == nil || get.Path != probe.path || get.Port.String() != c.Ports[0].Name {
			t.Errorf("the %s probe asks %v, want %s at port %s", probe.name, get, probe.path, c.Ports[0].Name)
		}
	}
}

// TestPodsGoBeforeTheirSuccessorsCome shows that an update stops a pod before it starts a new one, because spare GPUs are rare.
func TestPodsGoBeforeTheirSuccessorsCome(t *testing.T) {
	rolling := find[*apps.Deployment](t, objects(t, enough)).Spec.Strategy.RollingUpdate
	if rolling.MaxSurge.IntValue() != 0 || rolling.MaxUnavailable.IntValue() != 1 {
		t.Errorf("max surge %s, max unavailable %s", rolling.MaxSurge, rolling.MaxUnavailable)
	}
	recreate := objects(t, enough.with(values{"strategy": map[string]any{"type": "Recreate", "rollingUpdate": nil}}))
	if got := find[*apps.Deployment](t, recreate).Spec.Strategy; got.RollingUpdate != nil || got.Type != apps.RecreateDeploymentStrategyType {
		t.Errorf("strategy %+v", got)
	}
}
