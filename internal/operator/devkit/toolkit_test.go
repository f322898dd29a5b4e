package devkit

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestFatbinHasEachCubin(t *testing.T) {
	if findTool("fatbinary") == "" || findTool("nvcc") == "" {
		t.Skip("NOT TESTED: THERE IS NO FATBINARY OR NO NVCC HERE (CUDA_HOME)")
	}
	computes := []string{"8.0", "9.0"}
	var cubins [][]byte
	for _, compute := range computes {
		path := filepath.Join(t.TempDir(), "a.cubin")
		if out, err := exec.Command(findTool("nvcc"), "-cubin", "-arch=sm_"+compute[:1]+compute[2:], "-x", "cu", "/dev/null", "-o", path).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cubin, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cubins = append(cubins, cubin)
	}
	fatbin, err := Fatbin(t.Context(), computes, cubins)
	if err != nil {
		t.Fatal(err)
	}
	for _, cubin := range cubins {
		if !bytes.Contains(fatbin, cubin) {
			t.Errorf("the fatbin of %d bytes doesn't contain a cubin of %d", len(fatbin), len(cubin))
		}
	}
	cubins[1] = []byte("no cubin")
	if _, err := Fatbin(t.Context(), computes, cubins); err == nil {
		t.Error("a text was accepted as a cubin")
	}
}

func TestWithoutTheToolkitErrorsSayWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	defer func(old []string) { toolkits = old }(toolkits)
	toolkits = nil
	t.Setenv("CUDA_HOME", "")
	if _, err := Fatbin(t.Context(), nil, nil); !errors.Is(err, ErrNoFatbinary) {
		t.Errorf("error %v", err)
	}
	if _, err := Sanitizer(); !errors.Is(err, ErrNoSanitizer) {
		t.Errorf("error %v", err)
	}
	home := t.TempDir()
	t.Setenv("CUDA_HOME", home)
	program := filepath.Join(home, "bin", "compute-sanitizer")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if path, err := Sanitizer(); err != nil || path != program {
		t.Errorf("%q, %v", path, err)
	}
}

func TestWrittenFileReplacesTheOldOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.cubin")
	for _, text := range []string{"old", "new"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := WriteFile(filepath.Join(path, "nothing"), nil); err == nil {
		t.Error("a file in a folder that doesn't exist was written")
	}
}
