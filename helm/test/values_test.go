package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// TestLint runs `helm lint --strict` with and without the required values. Without them, the templates must report the
// missing values.
func TestLint(t *testing.T) {
	for what, set := range map[string]values{"required values": enough, "no values": {}} {
		result := lint.AllWithKubeVersion(chartDir, set.parsed(t), "gpu-jobs", oldest)
		if result.ChartDir == "" || len(result.Messages) == 0 {
			t.Fatalf("helm lint checked nothing: %+v", result) // there is at least a note about the missing icon
		}
		for _, m := range result.Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("with %s: %v", what, m)
			}
		}
	}
}

// TestSchemaHasEveryValue shows that values.yaml and the schema have the same value names.
func TestSchemaHasEveryValue(t *testing.T) {
	compare(t, "", schemaNode(t), loaded(t).Values)
}

func schemaNode(t *testing.T) (root node) {
	t.Helper()
	if err := json.Unmarshal(loaded(t).Schema, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// words are the values of an enum as texts. true and "true" are equal.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(data []byte) error {
	var values []any
	if err := json.Unmarshal(data, &values); err != nil {
		return err
	}
	for _, v := range values {
		if text := fmt.Sprint(v); !slices.Contains(*w, text) {
			*w = append(*w, text)
		}
	}
	return nil
}

// node contains the relevant fields of a part of the schema.
type node struct {
	Type       any // name or list of names
	Properties map[string]node
	Minimum    json.Number
	Maximum    json.Number
	Enum       words
}

func compare(t *testing.T, at string, schema node, have map[string]any) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(schema.Properties)) {
		if _, ok := have[key]; !ok && at+"/"+key != "/global" { // set by a parent chart
			t.Errorf("%s/%s is in the schema, but not in values.yaml", at, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		part, ok := schema.Properties[key]
		inner, isMap := have[key].(map[string]any)
		switch {
		case !ok:
			t.Errorf("%s/%s is in values.yaml, but not in the schema", at, key)
		case isMap && len(part.Properties) > 0:
			compare(t, at+"/"+key, part, inner)
		}
	}
}

// TestReadmeIsCurrent shows that README.md equals the output of helm-docs for values.yaml and README.md.gotmpl. Every
// value has a description.
func TestReadmeIsCurrent(t *testing.T) {
	docs := build(t, ".", "github.com/norwoodj/helm-docs/cmd/helm-docs")
	command := exec.CommandContext(t.Context(), docs, "--chart-search-root", chartDir, "--dry-run", "--sort-values-order", "file", "--log-level", "warning")
	var complaints strings.Builder
	command.Stderr = &complaints
	made, err := command.Output()
	if err != nil || complaints.Len() > 0 {
		t.Fatalf("%v: %s", err, complaints.String())
	}
	if strings.TrimSpace(string(made)) != strings.TrimSpace(string(readChart(t, "README.md"))) {
		t.Error("helm/millrace/README.md differs from the output of helm-docs: run make chart-docs")
	}
	for line := range strings.Lines(string(made)) {
		if cells := strings.Split(line, " | "); len(cells) >= 3 && strings.TrimSuffix(strings.TrimSpace(cells[len(cells)-1]), "|") == "" {
			t.Errorf("a value has no description: %s", line)
		}
	}
}
