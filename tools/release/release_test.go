package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVersionIsTheCharts(t *testing.T) {
	const chart = "apiVersion: v2\nversion: 0.2.0-dev\nappVersion: \"0.2.0-dev\"\n"
	for _, c := range []struct{ version, chart, want string }{
		{"0.2.0", chart, ""},
		{"0.2.0-rc.1", chart, ""},
		{"v0.2.0", chart, `VERSION is "v0.2.0": set it like 0.2.0`},
		{"0.2.0+build", chart, "without a plus"},
		{"0.2", chart, "VERSION is"},
		{"", chart, "VERSION is"},
		{"0.3.0", chart, "VERSION is 0.3.0, and version in helm/millrace/Chart.yaml is 0.2.0-dev"},
		{"0.2.0", strings.Replace(chart, `"0.2.0-dev"`, `"0.1.0"`, 1), "and appVersion in helm/millrace/Chart.yaml is 0.1.0"},
		{"0.2.0", "version: 0.2.0-dev\n", "has 1 of version and appVersion"},
	} {
		err := checkVersion(c.version, c.chart)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.version, err, c.want)
		}
	}
}

func TestNotesAreTheChangelogs(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.2.0 (2026-11-24)\n\n### Added\n\n- a thing\n\n## 0.1.0\n\n## 0.0.1\n\n- first\n"
	for _, c := range []struct {
		version string
		dry     bool
		want    string
	}{
		{"0.2.0", false, "# Millrace 0.2.0\n\n### Added\n\n- a thing\n"},
		{"0.2.0", true, "# Millrace 0.2.0\n\n### Added\n\n- a thing\n"},
		{"0.0.1", false, "# Millrace 0.0.1\n\n- first\n"},
		{"0.3.0", true, "# Millrace 0.3.0\n\n- new\n"},
		{"0.3.0", false, ""},
		{"0.1.0", false, ""}, // has no text
	} {
		got, err := notes(changelog, c.version, c.dry)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.version, got, err, c.want)
		}
	}
}

// readRoot returns a file at the root of the repository.
func readRoot(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestARealReleaseCanBeChecked: Chart.yaml and CHANGELOG.md of this repository have what a release needs.
func TestARealReleaseCanBeChecked(t *testing.T) {
	chart := readRoot(t, "helm/millrace/Chart.yaml")
	next := form.FindStringSubmatch(chartVersion.FindStringSubmatch(chart)[2])[1]
	if err := checkVersion(next, chart); err != nil {
		t.Error(err)
	}
	if text, err := notes(readRoot(t, "CHANGELOG.md"), next, true); err != nil || len(text) < 100 {
		t.Errorf("%v: %q", err, text)
	}
}

// TestHeadingsOfTheChangelog: the sections have the headings of Keep a Changelog, in its order and each once.
func TestHeadingsOfTheChangelog(t *testing.T) {
	order := []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	last, headings := -1, 0
	for line := range strings.Lines(readRoot(t, "CHANGELOG.md")) {
		if strings.HasPrefix(line, "## ") {
			last = -1
		}
		heading, is := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if !is {
			continue
		}
		at := slices.Index(order, heading)
		if at <= last {
			t.Errorf("the heading %q is not one of %q, or not in that order", heading, order)
		}
		last, headings = at, headings+1
	}
	if headings == 0 {
		t.Error("the changelog has no headings")
	}
}

// TestArchiveNeedsOnlyDocker: its Dockerfile is the last stage, with the files beside it. tools/image/test compiles it.
func TestArchiveNeedsOnlyDocker(t *testing.T) {
	whole := readRoot(t, "Dockerfile")
	got, err := lastStage(whole, "1.2.3", "abc", "1.2.3-nvrtc")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "# Build the image with: docker build -t millrace:1.2.3-nvrtc - <") || strings.Count(got, "\nFROM ") != 1 || !strings.Contains(got, "\nADD root.tar /\n") || strings.Contains(got, "--from") || strings.Contains(got, "\nRUN ") ||
		!strings.Contains(got, "\nARG VERSION=1.2.3\n") || !strings.Contains(got, "\nARG COMMIT=abc\n") {
		t.Errorf("the Dockerfile of the archive:\n%s", got)
	}
	for what, text := range map[string]string{
		"without the line that takes the files": strings.Replace(whole, built, "", 1),
		"without a base":                        strings.Replace(whole, "ARG BASE_IMAGE=", "ARG BASE=", 1),
		"without a stage":                       strings.ReplaceAll(whole, "\nFROM ", "\nfrom "),
	} {
		if _, err := lastStage(text, "1", "2", "1"); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// goBinary builds a command of this repository. Unlike go build, go run keeps what it linked in the cache.
func goBinary(t *testing.T, at, program string) {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), "go", "run", "-exec=cp", program, at).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestBOMHasWhatTheFilesContain compares it with what go version -m reads from the worker.
func TestBOMHasWhatTheFilesContain(t *testing.T) {
	folder := t.TempDir()
	worker := filepath.Join(folder, "worker-1.2.3-linux-amd64")
	goBinary(t, worker, "millrace/cmd/worker")
	for _, name := range []string{"libmillrace.so", "millrace-image-1.2.3-nvrtc-linux-amd64.tar.gz", "millrace-1.2.3.tgz"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	b, err := newBOM("1.2.3", folder, "12.4.131", readRoot(t, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	refs := map[string]component{}
	for _, c := range b.Components {
		if _, twice := refs[c.Ref]; twice {
			t.Errorf("%s is there twice", c.Ref)
		}
		refs[c.Ref] = c
	}
	listed, err := exec.CommandContext(t.Context(), "go", "version", "-m", worker).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(listed)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			modules++
			if c := refs["pkg:golang/"+strings.ToLower(f[1])+"@"+strings.ReplaceAll(f[2], "+", "%2B")]; c.Name != f[1] || c.Version != f[2] {
				t.Errorf("%s %s is not there", f[1], f[2])
			}
		}
	}
	if modules < 10 || len(refs) != 4+modules+1+2+1+2 { // files, modules, Go, of the library, the base, of NVRTC
		t.Errorf("%d components for %d modules", len(refs), modules)
	}
	if h := refs["file:libmillrace.so"].Hashes[0]; h.Algorithm != "SHA-256" || len(h.Content) != 64 || refs["cuda-runtime"].Version != "12.4.131" || b.Metadata.Timestamp != "2023-11-14T22:13:20Z" {
		t.Errorf("hash %v, CUDA %v, time %s", h, refs["cuda-runtime"], b.Metadata.Timestamp)
	}
	for _, d := range b.Dependencies {
		for _, on := range d.On {
			if _, ok := refs[on]; !ok {
				t.Errorf("%s contains %s, which is no component", d.Ref, on)
			}
		}
	}
	wantDeterministic(t, b, folder)
}

// wantDeterministic checks that the same files have the same list, and others another serial number.
func wantDeterministic(t *testing.T, b *bom, folder string) {
	t.Helper()
	text := func(b *bom) string {
		out, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	again, err := newBOM("1.2.3", folder, "12.4.131", readRoot(t, "Dockerfile"))
	if err != nil || text(again) != text(b) {
		t.Errorf("the same files have another list: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "NOTICES"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, err := newBOM("1.2.3", folder, "12.4.131", readRoot(t, "Dockerfile")); err != nil || other.Serial == b.Serial {
		t.Errorf("other files have the serial number %s: %v", b.Serial, err)
	}
}

func TestBOMRefusesWhatItCannotRead(t *testing.T) {
	empty, broken := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "worker-1-linux-amd64"), []byte("no binary"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{empty, broken, filepath.Join(empty, "none")} {
		if _, err := newBOM("1", folder, "", ""); err == nil {
			t.Errorf("%s is taken", folder)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"publish"}, {"notes"}, {"sbom", "1"}, {"dockerfile", "1", "2"}} {
		if run(args) == nil {
			t.Errorf("%q are taken", args)
		}
	}
}
