package test

import (
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
)

// TestHelmTestChecks shows that helm test runs `worker check` with the worker's settings. The pod has a GPU only with test.gpu.
func TestHelmTestChecks(t *testing.T) {
	set := values{"gpu.count": 2, "gpu.mode": "dra", "config.devices": "0,1", "nats.existingSecret": "nats", "nats.credsKey": "c"}
	list := objects(t, enough.with(set))
	pod, worker := find[*core.Pod](t, list), workerPod(t, list)
	c := pod.Spec.Containers[0]
	if pod.Annotations["helm.sh/hook"] != "test" || !slices.Equal(c.Args, []string{"check"}) || c.Image != worker.Containers[0].Image {
		t.Errorf("annotations %v, image %s, arguments %v", pod.Annotations, c.Image, c.Args)
	}
	want := environment(worker.Containers[0])
	want["MILLRACE_DEVICE"], want["MILLRACE_DEVICES"] = "host", "all"
	delete(want, "CUDA_CACHE_PATH")
	got := environment(c)
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s=%q, but the worker's value is %q", name, got[name], value)
		}
	}
	if len(got) != len(want) || len(pod.Spec.ResourceClaims) != 0 || len(extended(c.Resources)) != 0 || behind(pod.Spec, got["MILLRACE_NATS_CREDS"]) != "nats/c" {
		t.Errorf("claims %v, resources %v, variables %v", pod.Spec.ResourceClaims, c.Resources, got)
	}

	list = objects(t, enough.with(set).with(values{"test.gpu": true}))
	pod = find[*core.Pod](t, list)
	if len(pod.Spec.ResourceClaims) != 1 || environment(pod.Spec.Containers[0])["MILLRACE_DEVICE"] != "cuda" {
		t.Errorf("with test.gpu, the pod claims %v and computes on %s", pod.Spec.ResourceClaims, environment(pod.Spec.Containers[0])["MILLRACE_DEVICE"])
	}
}

func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for want, set := range map[string]values{
		"registry.example.com/millrace:" + loaded(t).Metadata.AppVersion: {},
		"registry.example.com/millrace:nightly":                          {"image.tag": "nightly"},
		"registry.example.com/millrace@" + digest:                        {"image.tag": "nightly", "image.digest": digest},
		"localhost:5000/millrace:1":                                      {"image.repository": "localhost:5000/millrace", "image.tag": "1"},
	} {
		if got := workerPod(t, objects(t, enough.with(set))).Containers[0].Image; got != want {
			t.Errorf("%v: image %s, want %s", set, got, want)
		}
	}
}

// TestPlacement checks that the scheduling settings reach the pods.
func TestPlacement(t *testing.T) {
	pod := workerPod(t, objects(t, enough.with(values{
		"runtimeClassName": "nvidia", "priorityClassName": "batch", "nodeSelector": map[string]any{"nvidia.com/gpu.product": "H100"},
		"tolerations":               []any{map[string]any{"key": "dedicated", "operator": "Exists"}},
		"affinity":                  map[string]any{"nodeAffinity": map[string]any{}},
		"topologySpreadConstraints": []any{map[string]any{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}},
	})))
	if *pod.RuntimeClassName != "nvidia" || pod.PriorityClassName != "batch" || pod.NodeSelector["nvidia.com/gpu.product"] != "H100" ||
		len(pod.Tolerations) != 2 || pod.Affinity.NodeAffinity == nil {
		t.Errorf("runtime class %v, priority class %s, nodes %v, tolerations %v, affinity %v", *pod.RuntimeClassName, pod.PriorityClassName,
			pod.NodeSelector, pod.Tolerations, pod.Affinity)
	}
	list := objects(t, enough)
	if selector := pod.TopologySpreadConstraints[0].LabelSelector; !picks(t, *selector, find[*apps.Deployment](t, list).Spec.Template.Labels) {
		t.Errorf("the topology spread selects pods by %v, which doesn't match the workers", selector)
	}
}

// TestAnotherChartVersionStartsNothingAnew shows that a new chart version restarts pods only if the pods themselves change.
func TestAnotherChartVersionStartsNothingAnew(t *testing.T) {
	template := find[*apps.Deployment](t, objects(t, enough.with(values{"image.tag": "1", "podLabels": map[string]any{"team": "a"}}))).Spec.Template
	for name, value := range template.Labels {
		if strings.Contains(value, loaded(t).Metadata.Version) {
			t.Errorf("the label %s=%s changes with the chart", name, value)
		}
	}
	if template.Labels["team"] != "a" {
		t.Errorf("podLabels are missing: %v", template.Labels)
	}
}

// TestSwitchesSwitchOff checks that users can disable objects that are enabled by default.
func TestSwitchesSwitchOff(t *testing.T) {
	list := objects(t, enough.with(values{"podDisruptionBudget.enabled": false, "serviceAccount.create": false, "serviceAccount.name": "mine"}))
	if has[*policy.PodDisruptionBudget](list) || has[*core.ServiceAccount](list) || workerPod(t, list).ServiceAccountName != "mine" {
		t.Errorf("%d objects, ServiceAccount %s", len(list), workerPod(t, list).ServiceAccountName)
	}
	if kinds := len(objects(t, enough)); kinds != 4 {
		t.Errorf("%d objects by default, want Deployment, PodDisruptionBudget, ServiceAccount and the pod of helm test", kinds)
	}
}

// TestNamesFit shows that names are short enough for pods with every release name, and each object has a different name.
func TestNamesFit(t *testing.T) {
	for _, set := range []values{{}, {"fullnameOverride": strings.Repeat("a", 60)}, {"nameOverride": strings.Repeat("b", 63)}} {
		seen := map[string]bool{}
		for _, o := range objects(t, byService.with(modes["operators"]).with(set).with(values{"gpu.mode": "dra"})) {
			id, maximum := o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName(), 63
			if _, ok := o.(*core.Pod); ok {
				maximum = 253 // the pods of helm test keep the full name and have a shortened host name
			}
			if len(o.GetName()) > maximum || seen[id] || o.GetNamespace() != "" {
				t.Errorf("%v: %q of %d characters, a duplicate: %v, with the namespace %q", set, id, len(o.GetName()), seen[id], o.GetNamespace())
			}
			seen[id] = true
		}
	}
}

// TestNotesSayWhatToDoNext checks that the notes use the release's names and contain only what applies.
func TestNotesSayWhatToDoNext(t *testing.T) {
	for _, c := range []struct {
		set       values
		want, not []string
	}{
		{values{}, []string{"millrace " + loaded(t).Metadata.AppVersion + " is installed as web-millrace in gpu-jobs: 1 pod, each with 1 x nvidia.com/gpu.",
			"helm -n gpu-jobs test web --logs", "rollout status deployment/web-millrace", "nats pub ingest.hello",
			"echo 'some text' | kubectl -n gpu-jobs exec -i deployment/web-millrace -c worker -- /opt/millrace/worker send\n", "-- /opt/millrace/worker results --follow\n", "Prometheus doesn't scrape it yet", "config.provision=true", "says what to do:\n"}, []string{"timeline", "operators.sources"}},
		{values{"gpu.mode": "dra", "config.provision": true, "podMonitor.enabled": true, "config.debugAddr": "127.0.0.1:6060"},
			[]string{"1 x gpu.nvidia.com", "port-forward deployment/web-millrace 6060"}, []string{"Prometheus doesn't scrape", "config.provision=true"}},
		{modes["operators"], []string{"tests each of operators.sources on a", "operators.sources has a_b.cu, which no worker computes: name a_b in config.operators"}, []string{"entropy.cu"}},
		{modes["embedded"], []string{"CPU cores only", "port-forward deployment/web-millrace 4222 &"}, []string{"config.provision=true"}},
		{values{"config.device": "host"}, []string{"config.device=host computes on the CPU, so the GPU that each pod requests stays idle"}, nil},
		{byKEDA.with(values{"autoscaling.minReplicas": 0}), []string{"export MILLRACE_NATS_URL=nats://nats:4222\n", "echo 'some text' | worker send\n"}, []string{"kubectl -n gpu-jobs exec"}},
		{values{"autoscaling.mode": "keda", "autoscaling.keda.natsServerMonitoringEndpoint": "nats:8222"}, []string{"1 to 4 pods by keda (a lag of 670720 payloads per pod)"}, []string{"is not above the number of payloads that one pod"}},
	} {
		notes := mustRender(t, enough.with(c.set)).notes
		for _, want := range c.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%v: want %q in\n%s", c.set, want, notes)
			}
		}
		for _, not := range c.not {
			if strings.Contains(notes, not) {
				t.Errorf("%v: %q is wrong in\n%s", c.set, not, notes)
			}
		}
	}
}
