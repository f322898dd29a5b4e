package test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write files/names.yaml of the chart")

// namesFile contains the names of all values for templates/_unknown.tpl.
const namesFile = "files/names.yaml"

// schemaNames collects the value names of each map in the schema. The template checks the names in maps with
// additionalProperties: true.
type schemaNames struct {
	definitions map[string]any
	found       map[string][]string
}

// collect adds the map at a path, including nested maps.
func (s *schemaNames) collect(t *testing.T, at string, schema map[string]any) {
	t.Helper()
	if to, ok := schema["$ref"].(string); ok {
		schema = s.definitions[strings.TrimPrefix(to, "#/definitions/")].(map[string]any)
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok || at == "global" { // global may contain values of other charts
		return
	}
	if schema["additionalProperties"] != true {
		t.Errorf("additionalProperties of %q is %v: set true, so that the chart names unknown values itself", at, schema["additionalProperties"])
	}
	s.found[at] = slices.Sorted(maps.Keys(properties))
	for name, inner := range properties {
		s.collect(t, strings.TrimPrefix(at+"."+name, "."), inner.(map[string]any))
	}
}

// TestNamesAreThoseOfTheSchema shows that the template has every name. go test -run TestNames -update writes the file.
func TestNamesAreThoseOfTheSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(loaded(t).Schema, &schema); err != nil {
		t.Fatal(err)
	}
	s := schemaNames{definitions: schema["definitions"].(map[string]any), found: map[string][]string{}}
	s.collect(t, "", schema)
	var text strings.Builder
	text.WriteString("# Generated from values.schema.json by make chart-docs: the names of the values in each map. templates/_unknown.tpl reads them.\n")
	for _, at := range slices.Sorted(maps.Keys(s.found)) {
		text.WriteString(`"` + at + `": [` + strings.Join(s.found[at], ", ") + "]\n")
	}
	if *update {
		if err := os.WriteFile(filepath.Join(chartDir, namesFile), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(readChart(t, namesFile)) != text.String() {
		t.Errorf("%s is out of date: run make chart-docs", namesFile)
	}
	var read map[string][]string
	if err := yaml.Unmarshal([]byte(text.String()), &read); err != nil || !maps.EqualFunc(read, s.found, slices.Equal) {
		t.Errorf("%s reads as %v, want %v: %v", namesFile, read, s.found, err)
	}
}
