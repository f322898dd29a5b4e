package test

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

// TestOldestKubernetesDecodesEveryMode decodes the rendered chart into the types of the oldest supported Kubernetes.
// They are in the module helm/oldest, because Helm needs newer types.
func TestOldestKubernetesDecodesEveryMode(t *testing.T) {
	program := build(t, "../oldest", "millrace/helm/oldest")
	decode := func(text string) (said string, err error) {
		command := exec.CommandContext(t.Context(), program)
		command.Stdin = strings.NewReader(text)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		if modes[name]["gpu.mode"] == "dra" {
			continue
		}
		for _, watch := range []values{byPod, byService} {
			for _, m := range mustRender(t, watch.with(modes[name])).manifests {
				all.WriteString(m.text + "\n---\n")
			}
		}
	}
	said, err := decode(all.String())
	if err != nil || !strings.Contains(said, "manifests decoded strictly") {
		t.Errorf("%v\n%s", err, said)
	}
	t.Log(strings.TrimSpace(said))

	deployment := from(t, mustRender(t, enough), "deployment.yaml")
	for what, text := range map[string]string{
		"a kind of 1.34":          from(t, mustRender(t, enough.with(modes["dra"])), "resourceclaimtemplate.yaml"),
		"a field of 1.31":         strings.Replace(deployment, "emptyDir:", "image: {reference: a}\n          emptyDir:", 1),
		"a field that none knows": strings.Replace(deployment, "spec:", "spec:\n  replica: 1", 1),
	} {
		if said, err := decode(text); err == nil || text == deployment {
			t.Errorf("%s is decoded: %s", what, said)
		}
	}
	if said, err := decode(deployment); err != nil || !strings.HasPrefix(said, "1 manifests") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestHelmAssumesAVersion shows that the Helm that `go install` builds assumes an old version of Kubernetes, which
// docs/kubernetes.md names.
func TestHelmAssumesAVersion(t *testing.T) {
	assumed := chartutil.DefaultCapabilities.KubeVersion.Version
	if chartutil.IsCompatibleRange(loaded(t).Metadata.KubeVersion, assumed) {
		t.Errorf("the chart accepts the version %s, which Helm assumes", assumed)
	}
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "built with `go install` assumes " + strings.TrimPrefix(assumed, "v"); !strings.Contains(string(text), want) {
		t.Errorf("docs/kubernetes.md lacks %q", want)
	}
}

// from returns the text of a template's only manifest.
func from(t *testing.T, r rendered, template string) string {
	t.Helper()
	for _, m := range r.manifests {
		if m.from == "templates/"+template {
			return m.text
		}
	}
	t.Fatalf("%s renders no manifest", template)
	return ""
}
