//go:build cgo

package cuda_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator/testbuild"
)

func buildLibrary(t *testing.T, source string, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("NOT TESTED: THERE IS NO C COMPILER (cc) TO BUILD A LIBRARY WITH")
	}
	dir := t.TempDir()
	file, library := filepath.Join(dir, "library.c"), filepath.Join(dir, "library.so")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	contents, err := testbuild.Output([]string{file}, func(output string) *exec.Cmd {
		return exec.Command(compiler, append([]string{"-shared", "-fPIC", "-Wall", "-Werror", "-o", output, file}, flags...)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(library, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	return library
}

// wantRefusal checks that every function that opens the library fails in the same way, with a message that contains
// words.
func wantRefusal(t *testing.T, library string, kind error, words ...string) {
	t.Helper()
	_, open := cuda.Open(cuda.Options{Library: library})
	_, list := cuda.List(library)
	_, versions := cuda.LibraryVersions(library)
	for what, err := range map[string]error{"Open": open, "List": list, "LibraryVersions": versions} {
		if !errors.Is(err, kind) {
			t.Errorf("%s: got %v, want an error that wraps %q", what, err, kind)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message does not say %q: %v", what, word, err)
			}
		}
	}
}

func TestNamedLibraryMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nosuch.so")
	wantRefusal(t, path, device.ErrUnavailable, path, "make -C kernels", "MILLRACE_KERNELS")
}

// A name without a slash is a file in the working directory. The system's library path is not searched.
func TestNamedLibraryIsAPath(t *testing.T) {
	wantRefusal(t, "libc.so.6", device.ErrUnavailable, "./libc.so.6")
}

func TestLibraryFoundNowhere(t *testing.T) {
	t.Setenv("MILLRACE_KERNELS", "") // package cuda itself doesn't read the environment
	if _, err := cuda.LibraryVersions(""); err == nil {
		t.Skip("NOT TESTED: LIBMILLRACE.SO IS INSTALLED ON THIS MACHINE, SO IT IS FOUND")
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(executable), "libmillrace.so")
	wantRefusal(t, "", device.ErrUnavailable, beside, ", libmillrace.so", "make -C kernels", "MILLRACE_KERNELS")
}

func TestNotALibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(path, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, path, device.ErrUnavailable, path, "make -C kernels")
}

func TestLibraryWithoutSymbols(t *testing.T) {
	path := buildLibrary(t, "int something_else(void) { return 1; }")
	wantRefusal(t, path, device.ErrABI, path, "millrace_abi_version", "not a Millrace kernel library")

	half := buildLibrary(t, "unsigned millrace_abi_version(void) { return 1; }")
	wantRefusal(t, half, device.ErrABI, half, "millrace_api_get", "not a Millrace kernel library")
}

// The table of a library of version 4 has no size field, so the size must not be read.
func TestOlderLibraryIsRefused(t *testing.T) {
	path := buildLibrary(t, `
		#include <stddef.h>
		unsigned millrace_abi_version(void) { return 4; }
		const void *millrace_api_get(unsigned version) { return version == 4 ? NULL : (void *)1; }`)
	wantRefusal(t, path, device.ErrABI, path, "ABI version 4,", "this program has version 6", "version 5 or later", "make -C kernels")
}

func TestNewerLibraryThatNeedsANewerProgramIsRefused(t *testing.T) {
	path := buildLibrary(t, `
		#include <stddef.h>
		static const unsigned table[3] = {4096, 4711, 4700};
		unsigned millrace_abi_version(void) { return 4711; }
		const void *millrace_api_get(unsigned least) { return least <= 4711 ? table : NULL; }`)
	wantRefusal(t, path, device.ErrABI, path, "ABI version 4711", "version 4700 or later", "this program has version 6", "make -C kernels")
}

// A newer library may have structures with more members at their ends. It refuses a program that needs a removed
// feature.
func TestNewerLibraryThatWorksWithThisProgramIsUsed(t *testing.T) {
	path := buildLibrary(t, `
		#include <stddef.h>
		#include "millrace.h"
		static int32_t versions(int32_t *r, int32_t *d, millrace_error *e) { (void)e; *r = 99020, *d = 0; return 0; }
		static const struct { millrace_api old; void *more[4]; } table = {
			{.size = sizeof table, .abi_version = 6, .least_version = 5, .versions = versions}, {0}};
		uint32_t millrace_abi_version(void) { return 6; }
		const millrace_api *millrace_api_get(uint32_t least) { return least == 5 ? &table.old : NULL; }`, "-I"+headerFolder(t))
	v, err := cuda.LibraryVersions(path)
	if err != nil || v.ABI != 6 || v.Runtime != "99.2" {
		t.Errorf("got %+v and %v, want version 6", v, err)
	}
}

func headerFolder(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "kernels", "include"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// builtLibrary returns the library under test: MILLRACE_KERNELS, or the library that `make -C kernels` built in this
// checkout. It returns "" if there is none.
func builtLibrary() string {
	if path := os.Getenv("MILLRACE_KERNELS"); path != "" {
		return path
	}
	path := filepath.Join("..", "..", "..", "kernels", "build", "libmillrace.so")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// The real library reports its versions on any machine. Without a GPU, every other call reports that no device is
// available.
func TestRealLibrary(t *testing.T) {
	library := builtLibrary()
	if library == "" {
		t.Skip("NOT TESTED: THERE IS NO LIBMILLRACE.SO: BUILD IT WITH `make -C kernels` OR NAME IT IN MILLRACE_KERNELS")
	}
	v, err := cuda.LibraryVersions(library)
	if err != nil {
		t.Fatal(err)
	}
	if v.Library != library || v.ABI != 6 || !strings.Contains(v.Runtime, ".") {
		t.Errorf("versions of %s: %+v", library, v)
	}
	gpus, err := cuda.List(library)
	if err == nil {
		if len(gpus) == 0 || v.Driver == "" {
			t.Errorf("no error, but %d GPUs and driver %q", len(gpus), v.Driver)
		}
		_, err := cuda.Open(cuda.Options{Library: library, Ordinal: len(gpus)})
		if !errors.Is(err, device.ErrNotFound) || !strings.Contains(err.Error(), gpus[0].ID) {
			t.Errorf("a GPU that is not there: got %v, want an error that wraps %q and names the GPUs", err, device.ErrNotFound)
		}
		return
	}
	if !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "driver") {
		t.Errorf("without a GPU: got %v, want an error that wraps %q and names the driver", err, device.ErrUnavailable)
	}
	if _, err := cuda.Open(cuda.Options{Library: library}); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("open without a GPU: got %v, want an error that wraps %q", err, device.ErrUnavailable)
	}
}
