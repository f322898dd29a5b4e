package test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apiyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const chartDir = "../millrace"

// oldest is the oldest supported version of Kubernetes. oldestDRA is the oldest version for gpu.mode=dra.
var (
	oldest    = &chartutil.KubeVersion{Version: "v1.29.0", Major: "1", Minor: "29"}
	oldestDRA = &chartutil.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
)

// values maps dotted paths to settings, for example "gpu.mode" to "mig".
type values map[string]any

// enough contains the required values of the chart.
var enough = values{"image.repository": "registry.example.com/millrace", "nats.url": "nats://nats:4222"}

func (v values) with(more values) values {
	both := values{}
	for _, set := range []values{v, more} {
		for at, value := range set {
			both[at] = value
		}
	}
	return both
}

// nested returns v in the structure of a values file.
func (v values) nested() map[string]any {
	root := map[string]any{}
	for at, value := range v {
		steps := strings.Split(at, ".")
		inner := root
		for _, step := range steps[:len(steps)-1] {
			if _, ok := inner[step]; !ok {
				inner[step] = map[string]any{}
			}
			inner = inner[step].(map[string]any)
		}
		inner[steps[len(steps)-1]] = value
	}
	return root
}

// parsed returns v as Helm reads it from a file, by formatting and parsing YAML.
func (v values) parsed(t *testing.T) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(v.nested())
	if err != nil {
		t.Fatal(err)
	}
	read, err := chartutil.ReadValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// theChart loads the chart once, because the chart never changes.
var theChart = sync.OnceValues(func() (*chart.Chart, error) { return loader.LoadDir(chartDir) })

func loaded(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := theChart()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rendered is the chart's output for some values.
type rendered struct {
	manifests []manifest
	notes     string
}

type manifest struct {
	from string // template file
	text string
}

// render works like `helm template` for the oldest Kubernetes that the values support.
func render(t *testing.T, v values) (rendered, error) {
	t.Helper()
	if v["gpu.mode"] == "dra" {
		return renderFor(t, oldestDRA, v)
	}
	return renderFor(t, oldest, v)
}

// renderFor works like `helm template --kube-version`: it checks values against the schema and runs the templates. A
// template must not use undefined values.
func renderFor(t *testing.T, version *chartutil.KubeVersion, v values) (rendered, error) {
	t.Helper()
	return renderBy(t, engine.Engine{Strict: true}, version, v.parsed(t))
}

// renderAsHelm works like `helm template` for parsed values. Like Helm, it treats undefined values as empty, such as
// values that null removed.
func renderAsHelm(t *testing.T, version *chartutil.KubeVersion, parsed map[string]any) (rendered, error) {
	t.Helper()
	return renderBy(t, engine.Engine{}, version, parsed)
}

// renderings caches the results of renderBy, because many tests render the same values.
var renderings sync.Map // maps texts to functions that return a result

// renderBy renders the chart once for equal arguments.
func renderBy(t *testing.T, e engine.Engine, version *chartutil.KubeVersion, parsed map[string]any) (rendered, error) {
	t.Helper()
	text, err := yaml.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprintf("%v %s\n%s", e.Strict, version.Version, text)
	once, _ := renderings.LoadOrStore(key, sync.OnceValues(func() (rendered, error) { return renderNew(t, e, version, parsed) }))
	return once.(func() (rendered, error))()
}

func renderNew(t *testing.T, e engine.Engine, version *chartutil.KubeVersion, parsed map[string]any) (rendered, error) {
	t.Helper()
	release := chartutil.ReleaseOptions{Name: "web", Namespace: "gpu-jobs", Revision: 1, IsInstall: true}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	c := loaded(t)
	all, err := chartutil.ToRenderValues(c, parsed, release, capabilities)
	if err != nil {
		return rendered{}, err
	}
	files, err := e.Render(c, all)
	if err != nil {
		return rendered{}, err
	}
	return split(t, files), nil
}

func mustRender(t *testing.T, v values) rendered {
	t.Helper()
	r, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// split divides rendered files into manifests, ordered by file name.
func split(t *testing.T, files map[string]string) (r rendered) {
	t.Helper()
	for name, text := range files {
		switch {
		case path.Base(name) == "NOTES.txt":
			r.notes = text
		case path.Ext(name) == ".yaml":
			for _, document := range documents(t, text) {
				r.manifests = append(r.manifests, manifest{from: strings.TrimPrefix(name, "millrace/"), text: document})
			}
		}
	}
	slices.SortStableFunc(r.manifests, func(a, b manifest) int { return strings.Compare(a.from, b.from) })
	return r
}

func documents(t *testing.T, text string) (list []string) {
	t.Helper()
	reader := apiyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if content != nil {
			list = append(list, string(document))
		}
	}
}

func (m manifest) String() string { return fmt.Sprintf("%s:\n%s", m.from, m.text) }
