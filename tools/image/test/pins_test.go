package image

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// pinned matches an image name with a digest and a numeric version. distroless has no versions, so it may have any tag.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`)

// TestBasesArePinned checks that each stage starts from an earlier stage or from a global argument with a digest.
func TestBasesArePinned(t *testing.T) {
	stages, args := parse(t)
	used := map[string]bool{}
	for i, s := range stages {
		if slices.ContainsFunc(stages[:i], func(earlier instructions.Stage) bool { return earlier.Name == s.BaseName }) {
			continue
		}
		name, ok := strings.CutPrefix(s.BaseName, "${")
		name = strings.TrimSuffix(name, "}")
		if !ok || args[name] == "" {
			t.Errorf("stage %q begins with %q, want an earlier stage or one of the arguments at the top, where all versions are", s.Name, s.BaseName)
		}
		used[name] = true
	}
	for name, value := range args {
		if !pinned.MatchString(value) {
			t.Errorf("%s=%s: want name:version@sha256:digest", name, value)
		}
		if !used[name] {
			t.Errorf("no stage uses %s", name)
		}
	}
}

// TestVersionsAgree compares the pins with the versions elsewhere in the repository.
func TestVersionsAgree(t *testing.T) {
	_, args := parse(t)
	module, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))[1]
	if !strings.HasPrefix(args["GO_IMAGE"], "golang:"+wanted+".") {
		t.Errorf("GO_IMAGE is %s, but go.mod requires Go %s", args["GO_IMAGE"], wanted)
	}
	if !strings.HasPrefix(runtime.Version(), "go"+wanted+".") {
		t.Errorf("this test runs with %s, but go.mod requires Go %s", runtime.Version(), wanted)
	}
	// The binary needs the C library of its Debian release in the base.
	release := map[string]string{"bookworm": "debian12", "trixie": "debian13"}[regexp.MustCompile(`-([a-z]+)@`).FindStringSubmatch(args["GO_IMAGE"])[1]]
	if release == "" || !strings.Contains(args["BASE_IMAGE"], "-"+release+":") {
		t.Errorf("GO_IMAGE is %s and BASE_IMAGE %s, want one Debian release", args["GO_IMAGE"], args["BASE_IMAGE"])
	}
	if !strings.HasPrefix(args["CUDA_IMAGE"], "nvidia/cuda:12.4.") {
		t.Errorf("CUDA_IMAGE is %s, but the figures in docs/benchmarks.md are from nvcc 12.4: measure again, then change both", args["CUDA_IMAGE"])
	}
}
