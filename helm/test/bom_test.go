package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// bomSchema returns the schema of CycloneDX, which the module of its library contains.
func bomSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	for id, file := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.5.schema.json": "bom-1.5.schema.json", "http://cyclonedx.org/schema/spdx.schema.json": "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "schema", file))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource(id, document); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.5.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestBillOfMaterialsIsCycloneDX checks the SBOM of a release against CycloneDX's schema, and reads it with CycloneDX's library. The tests of
// tools/release check what it lists.
func TestBillOfMaterialsIsCycloneDX(t *testing.T) {
	folder := t.TempDir()
	if err := os.Link(buildWorker(t), filepath.Join(folder, "worker-7.8.9-linux-amd64")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libmillrace.so", "millrace-7.8.9.tgz", "millrace-image-7.8.9-linux-amd64.tar.gz", "millrace-image-7.8.9-nvrtc-linux-amd64.tar.gz"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", "./tools/release", "sbom", "7.8.9", folder, "12.4")
	command.Dir = "../.."
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	schema := bomSchema(t)
	valid := func(text []byte) error {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		return schema.Validate(document)
	}
	if err := valid(text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if valid(bytes.Replace(text, []byte(`"type": "file"`), []byte(`"type": "files"`), 1)) == nil {
		t.Error("the schema takes a type that there isn't")
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil || bom.Metadata.Component.Version != "7.8.9" || len(*bom.Components) < 20 {
		t.Errorf("%v: %+v", err, bom.Metadata)
	}
}
