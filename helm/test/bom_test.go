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

// bomSchema returns the CycloneDX schema from the library's module.
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

// TestBillOfMaterialsIsCycloneDX validates the bill of materials of the image without the worker. It uses CycloneDX's
// schema and library. CycloneDX's own tool makes the workers' bills.
func TestBillOfMaterialsIsCycloneDX(t *testing.T) {
	folder := t.TempDir()
	inRepository(t, "release-sbom-image", "VERSION=7.8.9", "RELEASE="+folder, "CUDA_VERSION=12.4")
	text, err := os.ReadFile(filepath.Join(folder, "millrace-image-7.8.9.cdx.json"))
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
	if err := valid(text); err != nil || bytes.Contains(text, []byte("@VERSION@")) || bytes.Contains(text, []byte(`"@`)) {
		t.Errorf("%v\n%s", err, text)
	}
	if valid(bytes.Replace(text, []byte(`"type": "library"`), []byte(`"type": "libraries"`), 1)) == nil {
		t.Error("the schema accepts a type that doesn't exist")
	}
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]cyclonedx.Component{bom.Metadata.Component.BOMRef: *bom.Metadata.Component}
	for _, c := range *bom.Components {
		found[c.BOMRef] = c
	}
	if found["image"].Version != "7.8.9" || found["cuda-runtime"].Version != "12.4" || !strings.Contains(found["base"].Name, "@sha256:") {
		t.Errorf("the components are %+v", found)
	}
	for _, d := range *bom.Dependencies {
		for _, on := range *d.Dependencies {
			if _, ok := found[on]; !ok {
				t.Errorf("%s depends on %s, which is no component", d.Ref, on)
			}
		}
	}
}
