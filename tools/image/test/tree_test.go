package image

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// stamped are the build arguments of the images in these tests.
var stamped = map[string]string{"VERSION": "1.2.3", "COMMIT": "0123456789ab", "SOURCE_DATE_EPOCH": "1700000000"}

// stages is the folder with the stages of the last image that was built with stamped.
var stages string

// scratch is a folder that is removed after all tests.
var scratch string

// made builds the image's tree twice and returns both results, which must be equal. Both builds use one folder, as
// Docker always builds in /src.
var made = sync.OnceValues(func() ([2]string, error) {
	var trees [2]string
	for i := range trees {
		dir := filepath.Join(scratch, "play")
		kept := filepath.Join(scratch, fmt.Sprint("tree", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return trees, err
		}
		if err := playAll(dir, stamped, ""); err != nil {
			return trees, err
		}
		if err := os.Rename(filepath.Join(dir, final), kept); err != nil {
			return trees, err
		}
		if stages = filepath.Join(scratch, fmt.Sprint("stages", i)); os.Rename(dir, stages) != nil {
			return trees, fmt.Errorf("%s can't be kept as %s", dir, stages)
		}
		trees[i] = kept
	}
	return trees, nil
})

// tree returns the folder with the image's own files.
func tree(t *testing.T) string {
	t.Helper()
	trees, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return trees[0]
}

// TestTreeHasWhatIsNeeded checks that the tree contains exactly the required files.
func TestTreeHasWhatIsNeeded(t *testing.T) {
	want := []string{"/opt/millrace/LICENSE", "/opt/millrace/NOTICES", "/opt/millrace/libmillrace.so", "/opt/millrace/worker"}
	files := contents(t, tree(t))
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("the image's files are %q, want %q", got, want)
	}
	notices, err := os.ReadFile(filepath.Join(tree(t), "/opt/millrace/NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"github.com/nats-io/nats.go", "github.com/prometheus/client_golang", "CUDA runtime", "Go, go1."} {
		if !strings.Contains(string(notices), part) {
			t.Errorf("NOTICES doesn't contain %q", part)
		}
	}
}

// TestLibrariesAreTheCLibraryAlone checks that programs need only the C library. The base has no C++ library.
func TestLibrariesAreTheCLibraryAlone(t *testing.T) {
	for _, name := range []string{"worker", "libmillrace.so"} {
		f, err := elf.Open(filepath.Join(tree(t), "opt/millrace", name))
		if err != nil {
			t.Fatal(err)
		}
		libraries, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range libraries {
			if l != "libc.so.6" && l != "ld-linux-x86-64.so.2" {
				t.Errorf("%s needs %s, which the base does not have", name, l)
			}
		}
		t.Logf("%s needs %s", name, strings.Join(libraries, ", "))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTwoBuildsAreTheSame compares the files of two image builds, including modes and times, and a worker that was
// built in another folder.
func TestTwoBuildsAreTheSame(t *testing.T) {
	trees, err := made()
	if err != nil {
		t.Fatal(err)
	}
	first, second := contents(t, trees[0]), contents(t, trees[1])
	if !maps.Equal(first, second) {
		t.Errorf("one build made\n%v\nand the next\n%v", first, second)
	}
	cmd := exec.CommandContext(t.Context(), "make", "image-worker")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "VERSION="+stamped["VERSION"], "COMMIT="+stamped["COMMIT"], "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here, there := digestOf(t, filepath.Join(repository, "bin/image/worker")), digestOf(t, filepath.Join(trees[0], "opt/millrace/worker"))
	if here != there {
		t.Errorf("the worker built in the repository is %s, and in another folder %s", here, there)
	}
	for _, leak := range []string{repository, scratch, os.Getenv("HOME") + "/"} {
		for _, name := range []string{"worker", "libmillrace.so"} {
			if text, err := os.ReadFile(filepath.Join(trees[0], "opt/millrace", name)); err != nil || strings.Contains(string(text), leak) {
				t.Errorf("%s contains a path of the build machine: %s (error %v)", name, leak, err)
			}
		}
	}
}

func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[strings.TrimPrefix(path, root)] = fmt.Sprint(info.Mode(), info.ModTime().Unix(), digestOf(t, path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func digestOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
