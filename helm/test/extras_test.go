package test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestPodSettingsOfOnesOwn checks that common pod settings reach the workers and the pod of helm test.
func TestPodSettingsOfOnesOwn(t *testing.T) {
	list := objects(t, enough.with(values{
		"schedulerName": "volcano", "dnsPolicy": "None", "dnsConfig": map[string]any{"nameservers": []string{"10.0.0.10"}, "options": []any{map[string]any{"name": "ndots", "value": "2"}}},
		"hostAliases": []any{map[string]any{"ip": "10.0.0.1", "hostnames": []string{"nats"}}},
		"envFrom":     []any{map[string]any{"secretRef": map[string]any{"name": "otel"}}},
		"initContainers": []any{map[string]any{"name": "fetch", "image": "registry.example.com/fetch:1"},
			map[string]any{"name": "proxy", "image": "registry.example.com/proxy:1", "restartPolicy": "Always"}},
		"extraContainers": []any{map[string]any{"name": "shipper", "image": "registry.example.com/shipper:1"}},
	}))
	for what, pod := range map[string]core.PodSpec{"worker": workerPod(t, list), "check": find[*core.Pod](t, list).Spec} {
		if pod.SchedulerName != "volcano" || pod.DNSPolicy != core.DNSNone || pod.DNSConfig.Nameservers[0] != "10.0.0.10" || *pod.DNSConfig.Options[0].Value != "2" || pod.HostAliases[0].Hostnames[0] != "nats" {
			t.Errorf("%s: scheduler %s, DNS %s %v, hosts %v", what, pod.SchedulerName, pod.DNSPolicy, pod.DNSConfig, pod.HostAliases)
		}
		if c := pod.Containers[0]; c.Name != what || len(c.EnvFrom) != 1 || c.EnvFrom[0].SecretRef.Name != "otel" {
			t.Errorf("%s: container %s has variables from %v", what, c.Name, c.EnvFrom)
		}
		if len(pod.InitContainers) != 2 || pod.InitContainers[0].Name != "fetch" {
			t.Errorf("%s: init containers %v", what, pod.InitContainers)
		}
		if want := map[string]int{"worker": 2, "check": 1}[what]; len(pod.Containers) != want {
			t.Errorf("%s: %d containers, want %d: a pod of helm test with a sidecar would never end", what, len(pod.Containers), want)
		}
	}
}

// TestLabelsAndAnnotations shows that all objects and pods have the common labels. Selectors omit them, because a
// selector can't change.
func TestLabelsAndAnnotations(t *testing.T) {
	set := byService.with(byKEDA).with(modes["operators"]).with(values{
		"commonLabels": map[string]any{"team": "search", "cost": "42"}, "podLabels": map[string]any{"cost": "43"},
		"deploymentAnnotations": map[string]any{"reloader.example.com/auto": "true"}, "revisionHistoryLimit": 3,
	})
	list := objects(t, set)
	for _, o := range list {
		if labels := o.GetLabels(); labels["team"] != "search" || labels["cost"] != "42" {
			t.Errorf("%s has the labels %v", o.GetName(), labels)
		}
	}
	deployment := find[*apps.Deployment](t, list)
	if labels := deployment.Spec.Template.Labels; labels["team"] != "search" || labels["cost"] != "43" {
		t.Errorf("the pods have the labels %v, but podLabels take precedence", labels)
	}
	if len(deployment.Spec.Selector.MatchLabels) != 3 {
		t.Errorf("the selector is %v", deployment.Spec.Selector)
	}
	if deployment.Annotations["reloader.example.com/auto"] != "true" || len(deployment.Spec.Template.Annotations) != 0 || *deployment.Spec.RevisionHistoryLimit != 3 {
		t.Errorf("annotations %v, of the pods %v, %d revisions", deployment.Annotations, deployment.Spec.Template.Annotations, *deployment.Spec.RevisionHistoryLimit)
	}
}

// TestPreStopCountsTowardsTheGracePeriod shows that the grace period includes the preStop sleep, which would otherwise
// shorten the drain.
func TestPreStopCountsTowardsTheGracePeriod(t *testing.T) {
	plain := workerPod(t, objects(t, enough))
	r, err := renderFor(t, oldestDRA, enough.with(values{"lifecycle": map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": 15}}}}))
	if err != nil {
		t.Fatal(err)
	}
	hooked := workerPod(t, r.decode(t))
	if got := *hooked.TerminationGracePeriodSeconds - *plain.TerminationGracePeriodSeconds; got != 15 || hooked.Containers[0].Lifecycle.PreStop.Sleep.Seconds != 15 {
		t.Errorf("the grace period is %d s longer for a hook of 15 s: %v", got, hooked.Containers[0].Lifecycle)
	}
}

// TestExtraObjectsAreTemplates shows that an extra object is a map or a text, and may use the release's names.
func TestExtraObjectsAreTemplates(t *testing.T) {
	list := mustRender(t, enough.with(values{"extraObjects": []any{
		map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": `{{ include "millrace.fullname" . }}-a`}, "data": map[string]any{"stream": "{{ .Values.config.stream }}"}},
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-b\n",
	}})).manifests
	var names []string
	streams := map[string]any{}
	for _, m := range list {
		if m.from != "templates/extra.yaml" {
			continue
		}
		o := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(m.text), &o.Object); err != nil {
			t.Fatal(err)
		}
		names = append(names, o.GetName())
		streams[o.GetName()], _, _ = unstructured.NestedString(o.Object, "data", "stream")
	}
	if !slices.Equal(names, []string{"web-millrace-a", "web-b"}) || streams["web-millrace-a"] != "INGEST" {
		t.Errorf("objects %q with the streams %v", names, streams)
	}
}

// TestImagesFromAMirror shows that global.imageRegistry replaces only the registry.
func TestImagesFromAMirror(t *testing.T) {
	for repository, want := range map[string]string{
		"registry.example.com/team/millrace": "mirror.example.com/team/millrace:1",
		"localhost:5000/millrace":            "mirror.example.com/millrace:1",
		"localhost/millrace":                 "mirror.example.com/millrace:1",
		"team/millrace":                      "mirror.example.com/team/millrace:1",
		"millrace":                           "mirror.example.com/millrace:1",
	} {
		list := objects(t, enough.with(values{"image.repository": repository, "image.tag": "1", "global.imageRegistry": "mirror.example.com"}))
		for what, pod := range map[string]core.PodSpec{"worker": workerPod(t, list), "check": find[*core.Pod](t, list).Spec} {
			if got := pod.Containers[0].Image; got != want {
				t.Errorf("%s of %s: %s, want %s", what, repository, got, want)
			}
		}
	}
}

// TestPullSecretsOfEveryName shows that all values for pull Secrets are used, and each Secret appears once.
func TestPullSecretsOfEveryName(t *testing.T) {
	named := func(name string) []any { return []any{map[string]any{"name": name}} }
	pod := workerPod(t, objects(t, enough.with(values{
		"image.pullSecrets": named("a"), "imagePullSecrets": named("b"), "global.imagePullSecrets": []any{"c", map[string]any{"name": "a"}},
	})))
	want := []core.LocalObjectReference{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	if !slices.Equal(pod.ImagePullSecrets, want) {
		t.Errorf("pull Secrets %v, want %v", pod.ImagePullSecrets, want)
	}
}

// TestRecreateAlone shows that the chart omits the default rollingUpdate with Recreate, because Kubernetes refuses this combination.
func TestRecreateAlone(t *testing.T) {
	got := find[*apps.Deployment](t, objects(t, enough.with(values{"strategy.type": "Recreate"}))).Spec.Strategy
	if got.Type != apps.RecreateDeploymentStrategyType || got.RollingUpdate != nil {
		t.Errorf("strategy %+v", got)
	}
}

// TestReuseValuesIsNamed shows that helm upgrade --reuse-values fails if the old chart had fewer values, and that the
// error names another flag.
func TestReuseValuesIsNamed(t *testing.T) {
	for _, added := range []string{"global", "revisionHistoryLimit"} {
		older := *loaded(t)
		older.Values = maps.Clone(older.Values)
		delete(older.Values, added)
		all, err := chartutil.ToRenderValues(&older, enough.parsed(t), chartutil.ReleaseOptions{Name: "web"}, chartutil.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := engine.Render(&older, all); err == nil || !strings.Contains(err.Error(), "the values have no "+added) || !strings.Contains(err.Error(), "--reset-then-reuse-values") {
			t.Errorf("without %s: %v", added, err)
		}
	}
}

// TestNullRemovesAValue shows that `--set NAME=null` is valid for values that are empty by default. Scripts clear
// values that way.
func TestNullRemovesAValue(t *testing.T) {
	tried := 0
	for name, standard := range loaded(t).Values {
		switch empty := standard.(type) {
		case []any:
			if len(empty) != 0 {
				continue
			}
		case map[string]any:
			if len(empty) != 0 {
				continue
			}
		default:
			continue
		}
		tried++
		r, err := renderAsHelm(t, oldest, enough.with(values{name: nil}).parsed(t))
		if err != nil {
			t.Errorf("%s=null: %v", name, err)
			continue
		}
		if len(r.manifests) != len(mustRender(t, enough).manifests) {
			t.Errorf("%s=null: %d manifests", name, len(r.manifests))
		}
	}
	if tried < 15 {
		t.Errorf("only %d values were tried, want at least 15", tried)
	}
}
