//go:build e2e

package test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

var (
	coreVersion = core.SchemeGroupVersion
	plainCodecs = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
)

// namespace is the release's namespace, which enforces the Pod Security Standard "restricted".
const namespace = "gpu-jobs"

// TestCluster installs the chart on API servers of Kubernetes 1.36 and 1.29, and on a server that emulates 1.34.
// gpu.mode=dra needs at least 1.34, and the other modes need at least 1.29.
func TestCluster(t *testing.T) {
	for _, server := range []struct {
		program, minor string
		flags          []string
	}{
		{program: "kube-apiserver", minor: "36"},
		{program: "kube-apiserver", minor: "34", flags: []string{"--emulated-version=1.34"}},
		{program: "kube-apiserver-1.29", minor: "29"},
	} {
		t.Run("1."+server.minor, func(t *testing.T) {
			c := startCluster(t, server.program, server.flags...)
			api := c.prepare(t)
			c.version = c.asks(t, server.minor)
			t.Run("refuses what is wrong", func(t *testing.T) { refuses(t, api) })
			t.Run("takes every mode", func(t *testing.T) { c.takesEveryMode(t, api) })
			t.Run("helm install, upgrade and uninstall", func(t *testing.T) { c.installs(t, api) })
		})
	}
}

// asks returns the version that the server emulates, and checks its minor number. Servers before 1.31 emulate no other
// version.
func (c *cluster) asks(t *testing.T, minor string) *chartutil.KubeVersion {
	t.Helper()
	discover, err := discovery.NewDiscoveryClientForConfig(c.config())
	if err != nil {
		t.Fatal(err)
	}
	version, err := discover.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	acts := cmp.Or(version.EmulationMinor, version.Minor)
	fmt.Printf("kube-apiserver %s as 1.%s\n", version.GitVersion, acts)
	if acts != minor {
		t.Errorf("the server emulates 1.%s, want 1.%s", acts, minor)
	}
	return &chartutil.KubeVersion{Version: "v1." + acts + ".0", Major: "1", Minor: acts}
}

// modes returns the names of the modes that the server's version supports.
func (c *cluster) modes() (names []string) {
	for name, mode := range modes {
		if mode["gpu.mode"] != "dra" || c.version.Minor >= oldestDRA.Minor {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// prepare installs the operators' definitions and creates the namespace.
func (c *cluster) prepare(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(crds.AddToScheme(scheme), core.AddToScheme(scheme), apps.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(c.config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range definitions(t) {
		c.define(t, api, file)
	}
	space := &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if err := api.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(api, meta.FieldValidationStrict)
}

// define installs a CustomResourceDefinition and waits until the server serves it.
func (c *cluster) define(t *testing.T, api client.Client, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	definition := &crds.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, definition); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := api.Create(t.Context(), definition); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(ctx, t, definition.Name+" to be established", func() error {
		if err := api.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == crds.Established && condition.Status == crds.ConditionTrue {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// definitions returns the definition files from the operators' modules, in the versions of go.mod.
func definitions(t *testing.T) []string {
	t.Helper()
	const operator = "github.com/prometheus-operator/prometheus-operator"
	types := moduleDir(t, operator+"/pkg/apis/monitoring", "")
	_, version, _ := strings.Cut(filepath.Base(types), "@") // the types and the operator have the same version
	prometheus := filepath.Join(moduleDir(t, operator, version), "example/prometheus-operator-crd")
	keda := filepath.Join(moduleDir(t, "github.com/kedacore/keda/v2", ""), "config/crd/bases")
	fmt.Printf("definitions of the Prometheus operator %s and of KEDA %s\n", version, keda[strings.LastIndex(keda, "@")+1:len(keda)-len("/config/crd/bases")])
	return []string{
		filepath.Join(prometheus, "monitoring.coreos.com_podmonitors.yaml"),
		filepath.Join(prometheus, "monitoring.coreos.com_servicemonitors.yaml"),
		filepath.Join(prometheus, "monitoring.coreos.com_prometheusrules.yaml"),
		filepath.Join(keda, "keda.sh_scaledobjects.yaml"),
	}
}

// dirOfDownload parses the output of go mod download -json.
func dirOfDownload(t *testing.T, answer []byte) string {
	t.Helper()
	var download struct{ Dir, Error string }
	if err := json.Unmarshal(answer, &download); err != nil || download.Error != "" {
		t.Fatalf("%v %s", err, download.Error)
	}
	return download.Dir
}

// unread returns a manifest in the server's input form, without decoding it into a Go type.
func (m manifest) unread(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(m.text), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(namespace)
	return o
}

// refuses checks that the server detects mistakes: an unknown field, an invalid value, and a pod with too many
// privileges.
func refuses(t *testing.T, api client.Client) {
	list := mustRender(t, byKEDA.with(byPod)).manifests
	for _, c := range []struct {
		template string
		at       []string
		value    any
		why      func(error) bool
	}{
		{"deployment.yaml", []string{"spec", "replica"}, int64(1), apierrors.IsBadRequest},
		{"deployment.yaml", []string{"spec", "strategy", "type"}, "Rolling", apierrors.IsInvalid},
		{"podmonitor.yaml", []string{"spec", "interval"}, "15s", apierrors.IsBadRequest},
		{"scaledobject.yaml", []string{"spec", "triggers"}, "nats", apierrors.IsInvalid},
		{"tests/check.yaml", []string{"spec", "hostNetwork"}, true, apierrors.IsForbidden},
	} {
		i := slices.IndexFunc(list, func(m manifest) bool { return m.from == "templates/"+c.template })
		o := list[i].unread(t)
		if err := unstructured.SetNestedField(o.Object, c.value, c.at...); err != nil {
			t.Fatal(err)
		}
		if err := api.Create(t.Context(), o, client.DryRunAll); err == nil || !c.why(err) {
			t.Errorf("%s with %s = %v: %v", c.template, strings.Join(c.at, "."), c.value, err)
		}
	}
}

// takesEveryMode checks that the server strictly accepts the manifests of every mode, and the pods that a Deployment
// would create.
func (c *cluster) takesEveryMode(t *testing.T, api client.Client) {
	account := &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: "web-millrace", Namespace: namespace}}
	if err := api.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	taken := 0
	watch := map[string]values{"with a PodMonitor": byPod, "with a ServiceMonitor": byService}
	for _, name := range c.modes() {
		for _, how := range slices.Sorted(maps.Keys(watch)) {
			r, err := renderFor(t, c.version, watch[how].with(modes[name]))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range r.manifests {
				o := m.unread(t)
				if err := api.Patch(t.Context(), o, client.Apply, client.DryRunAll, client.FieldOwner("chart-e2e"), client.ForceOwnership); err != nil { //nolint:staticcheck // the typed Apply takes no unstructured object
					t.Errorf("%s, %s: %s: %v", name, how, m.from, err)
					continue
				}
				taken++
			}
			template := find[*apps.Deployment](t, r.decode(t)).Spec.Template
			pod := &core.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
			pod.Name, pod.Namespace = "web-millrace-worker", namespace
			if err := api.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("%s, %s: a pod of the Deployment: %v", name, how, err)
				continue
			}
			taken++
		}
	}
	if err := api.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d objects of %d modes validated strictly by the server\n", taken, len(c.modes()))
}

// installs tests helm install, upgrade and uninstall.
func (c *cluster) installs(t *testing.T, api client.Client) {
	settings := cli.New()
	settings.KubeAPIServer, settings.KubeToken, settings.KubeCaFile = c.url, c.token, c.caFile
	settings.SetNamespace(namespace)
	config := &action.Configuration{}
	if err := config.Init(settings.RESTClientGetter(), namespace, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace = "web", namespace
	mode := "dra"
	if !slices.Contains(c.modes(), mode) {
		if _, err := install.RunWithContext(t.Context(), loaded(t), byPod.with(modes[mode]).parsed(t)); err == nil || !strings.Contains(err.Error(), "gpu.mode is dra, which needs") {
			t.Errorf("helm install with gpu.mode=dra: %v", err)
		}
		mode = "mig"
	}
	release, err := install.RunWithContext(t.Context(), loaded(t), byPod.with(modes[mode]).parsed(t))
	if err != nil {
		t.Fatal(err)
	}
	deployment := &apps.Deployment{ObjectMeta: meta.ObjectMeta{Name: "web-millrace", Namespace: namespace}}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("helm install with gpu.mode=%s: release %s, revision %d, %s\n", mode, release.Name, release.Version, release.Info.Status)

	upgrade := action.NewUpgrade(config)
	upgrade.Namespace = namespace
	release, err = upgrade.RunWithContext(t.Context(), "web", loaded(t), byService.with(byKEDA).with(values{"config.lanes": 8}).parsed(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
		t.Fatal(err)
	}
	if got := environment(deployment.Spec.Template.Spec.Containers[0])["MILLRACE_LANES"]; got != "8" || deployment.Generation != 2 {
		t.Errorf("after the upgrade MILLRACE_LANES=%s, generation %d", got, deployment.Generation)
	}
	fmt.Printf("helm upgrade: revision %d, %s\n", release.Version, release.Info.Status)

	if _, err := action.NewUninstall(config).Run("web"); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); !apierrors.IsNotFound(err) {
		t.Errorf("after uninstall the Deployment: %v", err)
	}
	fmt.Println("helm uninstall: nothing is left")
}
