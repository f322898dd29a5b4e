//go:build cgo

package userops

import (
	"os"
	"path/filepath"
	"testing"

	"millrace/internal/operator"
)

// project converts a folder to a mounted ConfigMap. The files are in a folder with a time in its name, to which ..data
// is a symbolic link. Each name is a symbolic link to ..data/NAME.
func project(t *testing.T, dir, version string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, version), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(dir, version, e.Name())); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(version, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestOperatorsAreFoundInAConfigMapThatIsMounted covers a source with and without a library. Each operator is found
// once, by its name.
func TestOperatorsAreFoundInAConfigMapThatIsMounted(t *testing.T) {
	for name, built := range map[string]bool{"source": false, "source and library": true} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, built)
			project(t, dir, "..2026_01_02_03_04_05.678901234")
			found, err := Find([]string{dir}, nil)
			if err != nil || len(found) != 1 || found[0].Name() != "entropy" {
				t.Fatalf("%d operators are found, want entropy alone: %v", len(found), err)
			}
			if !built {
				return
			}
			op, err := operator.Parse("entropy", found[0])
			if err != nil {
				t.Fatal(err)
			}
			if kernels, err := Kernels([]operator.Operator{op}); err != nil || len(kernels) != 1 {
				t.Errorf("%d libraries are opened, want 1: %v", len(kernels), err)
			}
		})
	}
}
