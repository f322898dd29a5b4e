package image

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nvrtcTree builds the files of the variant with NVRTC and returns their folder.
func nvrtcTree(t *testing.T) string {
	t.Helper()
	args := maps.Clone(stamped)
	args["NVRTC"] = "1"
	dir := t.TempDir()
	if err := playAll(dir, args, stages); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, final)
}

// TestVariantWithNVRTC checks that NVRTC is beside the kernel library, which searches that folder. The loader must find all libraries that
// NVRTC needs.
func TestVariantWithNVRTC(t *testing.T) {
	variant := nvrtcTree(t)
	const folder, cxx = "/opt/millrace/", "/usr/lib/x86_64-linux-gnu/"
	nvrtc := []string{folder + "libnvrtc.so.12", folder + "libnvrtc-builtins.so.12.4"}
	files, plain := contents(t, variant), contents(t, tree(t))
	for _, path := range append(nvrtc, cxx+"libstdc++.so.6", cxx+"libgcc_s.so.1") {
		if _, ok := files[path]; !ok {
			t.Errorf("%s is missing", path)
		}
		delete(files, path)
	}
	notices, err := os.ReadFile(variant + folder + "NOTICES")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"libnvrtc.so.12", "https://docs.nvidia.com/cuda/eula/", "Attachment A", "libstdc++6"} {
		if !strings.Contains(string(notices), part) {
			t.Errorf("NOTICES doesn't contain %q", part)
		}
	}
	if got, want := slices.Sorted(maps.Keys(files)), slices.Sorted(maps.Keys(plain)); !slices.Equal(got, want) {
		t.Errorf("the other files are %q, but the plain image has %q", got, want)
	}
	root := jailRoot(t, variant)
	for _, file := range nvrtc {
		if said := says(t, root, nil, []string{loader, "--list", file}, 0, "libc.so.6 => /lib/"); strings.Contains(said, "not found") {
			t.Errorf("%s needs libraries that the image doesn't have:\n%s", file, said)
		}
	}
	compilesAnOperator(t, root)
}

// compilesAnOperator compiles the operator entropy for an H100. The compilation needs no GPU.
func compilesAnOperator(t *testing.T, root string) {
	t.Helper()
	const source = "/entropy.cu"
	text, err := os.ReadFile(filepath.Join(repository, "examples/operators/entropy/entropy.cu"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+source, text, 0o644); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	env := []string{jailTmp + "=" + writable(t)}
	build := []string{worker, "operator", "build", source, "--arch", "90", "--out", tmp}
	says(t, root, env, build, 0, "/tmp/entropy.cubin: operator entropy, version 1, for GPUs of compute capability 9.0, compiled with NVRTC 12.4")
	// Without the C++ library, the compiler can't open the built-in functions that it needs.
	if err := os.Remove(filepath.Join(root, "usr/lib/x86_64-linux-gnu/libstdc++.so.6")); err != nil {
		t.Fatal(err)
	}
	says(t, root, env, build, 1, "install libnvrtc-builtins of the same version")
	// The plain image lacks NVRTC, and its error contains advice.
	says(t, plainWith(t, source, text), env, build, 1, "NVRTC can't be opened")
}

// plainWith returns a jail with the plain image and one additional file.
func plainWith(t *testing.T, path string, text []byte) (root string) {
	t.Helper()
	root = jailRoot(t, tree(t))
	if err := os.WriteFile(root+path, text, 0o644); err != nil { //nolint:gosec // the image's user reads it
		t.Fatal(err)
	}
	return root
}

// TestVariantsAreNamed checks that `make image` gives each variant a separate tag, which the chart also uses.
func TestVariantsAreNamed(t *testing.T) {
	for nvrtc, want := range map[string]string{"": "-t millrace:1.2.3 ", "1": "-t millrace:1.2.3-nvrtc "} {
		out, err := exec.CommandContext(t.Context(), "make", "-C", repository, "--dry-run", "image", "VERSION=1.2.3", "NVRTC="+nvrtc).Output()
		if words := strings.Fields(string(out)); err != nil || !strings.Contains(string(out), want) || !slices.Contains(words, "NVRTC="+nvrtc) {
			t.Errorf("%v: %s", err, out)
		}
	}
}
