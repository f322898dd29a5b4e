//go:build cgo

package cuda_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
)

// The fake library has the same declarations as the real library, because both compile kernels/runtime/builtin.cpp.
func TestLibraryDeclaresTheBuiltInOperators(t *testing.T) { openFake(t, "") }

// otherLibrary returns a copy of the fake library in which the only occurrence of old is replaced by text.
func otherLibrary(t *testing.T, old, text string) string {
	t.Helper()
	file, err := os.ReadFile(fakecuda.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(file), old); n != 1 || len(old) != len(text) {
		t.Fatalf("%q is in the library %d times, want once", old, n)
	}
	path := filepath.Join(t.TempDir(), "other.so")
	if err := os.WriteFile(path, []byte(strings.Replace(string(file), old, text, 1)), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLibraryWithAnotherDeclarationIsRefused(t *testing.T) {
	fakecuda.Set(t, "")
	name := func(s string) string { return s + strings.Repeat("\x00", 32-len(s)) }
	for what, c := range map[string]struct {
		old, new string
		words    []string
	}{
		"another name of a field": {name("checksum"), name("checksun"), []string{"different operator crc32c",
			"it declares crc32c version 1, host code, checksun uint32, hex bare in JSON bare in Arrow, and the program declares crc32c version 1, host code, checksum uint32"}},
		"another default": {name("k") + "\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x18", name("k") + "\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x17",
			[]string{"different operator minhash", "k=23 (uint32, 1 to 256) shown", "k=24 (uint32, 1 to 256) shown"}},
		"another bound": {name("hashes") + "\x03\x00\x00\x00\x00\x00\x00\x00\x04", name("hashes") + "\x03\x00\x00\x00\x00\x00\x00\x00\x08",
			[]string{"different operator minhash", "a description that can't be read", "hashes is at byte 8"}},
	} {
		t.Run(what, func(t *testing.T) {
			path := otherLibrary(t, c.old, c.new)
			_, err := cuda.Open(cuda.Options{Library: path})
			if !errors.Is(err, device.ErrABI) {
				t.Fatalf("got %v, want an error that wraps %q", err, device.ErrABI)
			}
			for _, word := range append(c.words, path, "make -C kernels") {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the message doesn't say %q: %v", word, err)
				}
			}
		})
	}
}

// A library that doesn't declare crc32c's parameters and result is refused. The package's C test library is used, with
// its operator renamed to crc32c.
func TestLibraryThatDeclaresNothingIsRefused(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "library.c"))
	if err != nil {
		t.Skipf("NOT TESTED: THE PACKAGE'S FOLDER IS NOT HERE: %v", err)
	}
	path := buildLibrary(t, strings.Replace(string(source), `1, "length", NULL`, `1, "crc32c", NULL`, 1), "-I"+headerFolder(t))
	if _, err := cuda.Open(cuda.Options{Library: path}); !errors.Is(err, device.ErrABI) || !strings.Contains(err.Error(), "it declares nothing, and the program declares crc32c") {
		t.Errorf("got %v", err)
	}
}
