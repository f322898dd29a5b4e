package test

import (
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

func exampleSource(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/operators/" + name + "/" + name + ".cu")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// inline returns values with operators whose sources are in the values.
func inline(texts map[string]string, operators ...string) values {
	return enough.with(values{"operators.sources": texts, "config.operators": operators})
}

// folders maps each folder of MILLRACE_OPERATOR_PATH to the container's volume. Each mount must be read-only and of the
// whole volume, which then receives updates.
func folders(t *testing.T, pod core.PodSpec) map[string]core.VolumeSource {
	t.Helper()
	c, found := pod.Containers[0], map[string]core.VolumeSource{}
	for folder := range strings.SplitSeq(environment(c)["MILLRACE_OPERATOR_PATH"], ",") {
		m := slices.IndexFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == folder })
		if m < 0 || !c.VolumeMounts[m].ReadOnly || c.VolumeMounts[m].SubPath != "" {
			t.Fatalf("nothing is mounted read-only at %s: %v", folder, c.VolumeMounts)
		}
		v := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == c.VolumeMounts[m].Name })
		if v < 0 {
			t.Fatalf("no volume is called %s", c.VolumeMounts[m].Name)
		}
		found[folder] = pod.Volumes[v].VolumeSource
	}
	return found
}

// TestOperatorsReachTheWorker uses all sources of operators together, including a folder of the user.
func TestOperatorsReachTheWorker(t *testing.T) {
	texts := map[string]string{"entropy.cu": exampleSource(t, "entropy"), "redact.cu": exampleSource(t, "redact")}
	list := objects(t, inline(texts, "entropy?bits=5", "crc32c", "simhash", "blake3").with(values{
		"operators.configMap": "team-operators", "config.operatorPath": "/mine",
		"operators.volume":  map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "ops", "readOnly": true}},
		"extraVolumes":      []any{map[string]any{"name": "mine", "image": map[string]any{"reference": "registry.example.com/ops:1"}}},
		"extraVolumeMounts": []any{map[string]any{"name": "mine", "mountPath": "/mine", "readOnly": true}},
	}))
	pod, stored := workerPod(t, list), find[*core.ConfigMap](t, list)
	if got, want := environment(pod.Containers[0])["MILLRACE_OPERATORS"], "entropy?bits=5,crc32c,simhash,blake3"; got != want {
		t.Errorf("MILLRACE_OPERATORS is %s, want %s", got, want)
	}
	if !maps.Equal(stored.Data, texts) || stored.Immutable == nil || !*stored.Immutable {
		t.Errorf("the ConfigMap isn't immutable, or has other sources: %v", stored)
	}
	got := folders(t, pod)
	if v := got["/etc/millrace/operators/sources"].ConfigMap; v == nil || v.Name != stored.Name {
		t.Errorf("the sources are in %v, want ConfigMap %s", v, stored.Name)
	}
	if v := got["/etc/millrace/operators/config-map"].ConfigMap; v == nil || v.Name != "team-operators" {
		t.Errorf("the files of the ConfigMap are in %v", v)
	}
	if v := got["/etc/millrace/operators/volume"].PersistentVolumeClaim; v == nil || v.ClaimName != "ops" {
		t.Errorf("the volume is %v", v)
	}
	if v := got["/mine"].Image; len(got) != 4 || v == nil {
		t.Errorf("%d folders: %v", len(got), got)
	}
}

// TestAnotherSourceRestartsPods shows that the pod template changes only when the sources change.
func TestAnotherSourceRestartsPods(t *testing.T) {
	text := exampleSource(t, "entropy")
	render := func(text, revision string) (core.PodTemplateSpec, string) {
		list := objects(t, inline(map[string]string{"entropy.cu": text}, "entropy").with(values{"operators.revision": revision, "podAnnotations": map[string]any{"a": "b"}}))
		return find[*apps.Deployment](t, list).Spec.Template, find[*core.ConfigMap](t, list).Name
	}
	first, name := render(text, "")
	if again, sameName := render(text, ""); !reflect.DeepEqual(first, again) || name != sameName {
		t.Error("the same source restarts the pods")
	}
	if changed, another := render(text+"\n", ""); reflect.DeepEqual(first, changed) || name == another {
		t.Error("a changed source restarts no pod")
	}
	if revised, _ := render(text, "7"); revised.Annotations["millrace/operators"] != "7" || revised.Annotations["a"] != "b" || first.Annotations["millrace/operators"] != "" {
		t.Errorf("with a revision, the pods have the annotations %v, and without it %v", revised.Annotations, first.Annotations)
	}
}

// podsOf returns the pods with the given component label.
func podsOf(list []object, component string) (pods []*core.Pod) {
	for _, o := range list {
		if p, ok := o.(*core.Pod); ok && p.Labels["app.kubernetes.io/component"] == component {
			pods = append(pods, p)
		}
	}
	return pods
}

// TestHelmTestTestsEverySource shows that each source has a pod with a worker's GPUs and the operator's parameters, but
// without credentials.
func TestHelmTestTestsEverySource(t *testing.T) {
	texts := map[string]string{"a_b.cu": "x", "entropy.cu": "x"}
	secrets := values{"nats.url": "", "nats.existingSecret": "nats", "nats.urlKey": "url", "nats.credsKey": "creds", "nats.tls.caKey": "ca.crt"}
	for _, mode := range []string{"gpu", "mig", "shared", "dra"} {
		list := objects(t, inline(texts, "entropy?bits=5&x=1", "crc32c").with(secrets).with(values{"gpu.mode": mode}))
		worker := workerPod(t, list)
		pods := podsOf(list, "operator-test")
		if len(pods) != 2 {
			t.Fatalf("%s: %d pods, want one for each source", mode, len(pods))
		}
		for i, want := range [][]string{{"a_b.cu"}, {"entropy.cu", "--with", "bits=5&x=1"}} {
			p := pods[i]
			c := p.Spec.Containers[0]
			want = append([]string{"operator", "test", "/etc/millrace/operators/sources/" + want[0]}, want[1:]...)
			if !slices.Equal(c.Args, want) || p.Annotations["helm.sh/hook"] != "test" || c.Image != worker.Containers[0].Image {
				t.Errorf("%s: %v of %s with annotations %v, want %v", mode, c.Args, c.Image, p.Annotations, want)
			}
			if !reflect.DeepEqual(c.Resources, worker.Containers[0].Resources) || !reflect.DeepEqual(p.Spec.ResourceClaims, worker.ResourceClaims) ||
				!reflect.DeepEqual(p.Spec.Tolerations, worker.Tolerations) {
				t.Errorf("%s: the pod gets %v, %v, and a worker %v", mode, c.Resources, p.Spec.ResourceClaims, worker.Containers[0].Resources)
			}
			for _, v := range p.Spec.Volumes {
				if v.Secret != nil {
					t.Errorf("%s: the pod has the Secret %s", mode, v.Secret.SecretName)
				}
			}
			for name := range environment(c) {
				if strings.HasPrefix(name, "MILLRACE_NATS_") {
					t.Errorf("%s: the pod has %s", mode, name)
				}
			}
			if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path.Dir(want[2]) }) {
				t.Errorf("%s: %s isn't mounted", mode, path.Dir(want[2]))
			}
		}
	}
	if pods := podsOf(objects(t, inline(texts, "entropy").with(values{"test.operators": false})), "operator-test"); len(pods) != 0 {
		t.Errorf("%d pods with test.operators=false", len(pods))
	}
}

// TestCheckOnTheCPUHasNoOperatorsForAGPU shows that a check on the CPU omits operators for a GPU, because they can't
// run there. With gpu.mode=none or test.gpu, the pod of `worker check` has all operators.
func TestCheckOnTheCPUHasNoOperatorsForAGPU(t *testing.T) {
	for name, c := range map[string]struct {
		set  values
		want string // value of MILLRACE_OPERATORS
		path string
	}{
		"some built in": {values{"config.operators": []string{"entropy", "minhash?k=5"}, "config.operatorPath": "/a"}, "minhash?k=5", ""},
		"none built in": {values{"config.operators": []string{"entropy"}, "operators.configMap": "c"}, "crc32c,minhash,quality,neardup", ""},
		"on a GPU":      {values{"config.operators": []string{"entropy"}, "operators.configMap": "c", "test.gpu": true}, "entropy", "/etc/millrace/operators/config-map"},
		"on the CPU":    {values{"config.operators": []string{"entropy"}, "operators.configMap": "c", "gpu.mode": "none"}, "entropy", "/etc/millrace/operators/config-map"},
	} {
		pod := podsOf(objects(t, enough.with(c.set)), "check")[0].Spec
		env := environment(pod.Containers[0])
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == c.path })
		if env["MILLRACE_OPERATORS"] != c.want || env["MILLRACE_OPERATOR_PATH"] != c.path || mounted != (c.path != "") {
			t.Errorf("%s: operators %s in %q, mounted: %v; want %s in %q", name, env["MILLRACE_OPERATORS"], env["MILLRACE_OPERATOR_PATH"], mounted, c.want, c.path)
		}
	}
}

func TestImageVariants(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	sources := values{"operators.sources": map[string]string{"entropy.cu": "x"}}
	volume := values{"operators.volume": map[string]any{"emptyDir": map[string]any{}}}
	for _, c := range []struct {
		want string
		set  values
	}{
		{":1", values{}},
		{":1-nvrtc", sources},
		{":1-nvrtc", values{"operators.configMap": "c"}},
		{":1", volume},
		{":1-nvrtc", volume.with(values{"image.variant": "nvrtc"})},
		{":1", values{"operators.configMap": "c", "image.variant": "plain"}},
		{":2-nvrtc", sources.with(values{"image.tag": "2-nvrtc"})},
		{"@" + digest, sources.with(values{"image.digest": digest})},
		{"@" + digest, sources.with(values{"image.digest": digest, "image.variant": "plain"})},
	} {
		list := objects(t, enough.with(values{"image.tag": "1"}).with(c.set))
		for _, pod := range append(podsOf(list, "check"), &core.Pod{Spec: workerPod(t, list)}) {
			if got := pod.Spec.Containers[0].Image; got != "registry.example.com/millrace"+c.want {
				t.Errorf("%v: image %s, want %s", c.set, got, c.want)
			}
		}
	}
}

// TestTablesAreBesideTheirOperators shows that tables are in the sources' folder, and a changed table restarts the pods.
func TestTablesAreBesideTheirOperators(t *testing.T) {
	set := inline(map[string]string{"keywords.cu": exampleSource(t, "keywords")}, "keywords?words=words.txt").with(values{
		"operators.tables": map[string]string{"words.txt": "error\nwarning & <more>\n"},
	})
	list := objects(t, set)
	stored := find[*core.ConfigMap](t, list)
	if got := stored.Data["words.txt"]; got != "error\nwarning & <more>\n" || len(stored.Data) != 2 {
		t.Errorf("the table is %q among %d files", got, len(stored.Data))
	}
	if args := podsOf(list, "operator-test")[0].Spec.Containers[0].Args; !slices.Contains(args, "words=words.txt") {
		t.Errorf("the operator is tested with %q", args)
	}
	other := objects(t, set.with(values{"operators.tables": map[string]string{"words.txt": "error\n"}}))
	if find[*core.ConfigMap](t, other).Name == stored.Name {
		t.Error("a changed table restarts no pod")
	}
}

// TestCompiledOperatorsAreKept shows that the worker's cache is writable although its root file system is read-only.
func TestCompiledOperatorsAreKept(t *testing.T) {
	sources := inline(map[string]string{"entropy.cu": "x"}, "entropy")
	claim := map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "compiled"}}
	for name, c := range map[string]struct {
		set   values
		dir   string // value of MILLRACE_CACHE_DIR
		claim bool
	}{
		"by default":            {sources, "/var/cache/millrace", false},
		"of a ConfigMap":        {enough.with(values{"operators.configMap": "c", "config.operators": []string{"a"}}), "/var/cache/millrace", false},
		"on a claim":            {sources.with(values{"operators.cache.volume": claim}), "/var/cache/millrace", true},
		"in the user's folder":  {sources.with(values{"config.cacheDir": "/mine"}), "/mine", false},
		"off":                   {sources.with(values{"operators.cache.enabled": false}), "", false},
		"without operators":     {enough, "", false},
		"of built-in operators": {enough.with(values{"operators.cache.volume": claim}), "", false},
		"on the CPU":            {ownOnCPU("entropy"), "", false},
	} {
		list := objects(t, c.set)
		pod := workerPod(t, list)
		if got := environment(pod.Containers[0])["MILLRACE_CACHE_DIR"]; got != c.dir {
			t.Errorf("%s: MILLRACE_CACHE_DIR is %q, want %q", name, got, c.dir)
		}
		mount := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "cache" })
		volume := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "cache" })
		if mounted := c.dir == "/var/cache/millrace"; (mount >= 0) != mounted || (volume >= 0) != mounted {
			t.Errorf("%s: mounted: %v, a volume: %v, want %v", name, mount >= 0, volume >= 0, mounted)
			continue
		} else if !mounted {
			continue
		}
		if m := pod.Containers[0].VolumeMounts[mount]; m.ReadOnly || m.MountPath != c.dir {
			t.Errorf("%s: the cache is mounted as %v", name, m)
		}
		if v := pod.Volumes[volume]; (v.PersistentVolumeClaim != nil) != c.claim || (v.EmptyDir != nil) == c.claim {
			t.Errorf("%s: the volume is %v", name, v)
		}
		for _, p := range podsOf(list, "operator-test") {
			if slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name == "cache" }) {
				t.Errorf("%s: the code under test can write to the cache", name)
			}
		}
	}
}
