package devkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millrace/internal/operator/compiled"
)

// ErrNoFatbinary is the error for a machine without the program that makes fatbins.
var ErrNoFatbinary = errors.New("code for several architectures goes into a fatbin, which the CUDA toolkit's program fatbinary makes: " +
	"install it (Debian, from NVIDIA's repository: apt-get install cuda-nvcc-13-0), name the toolkit's folder in CUDA_HOME, or give one architecture")

// ErrNoSanitizer is the error for a machine without the program that checks a GPU's memory accesses.
var ErrNoSanitizer = errors.New("compute-sanitizer isn't installed: it is part of the CUDA toolkit (Debian, from NVIDIA's repository: " +
	"apt-get install cuda-sanitizer-13-0); put it on PATH, or name the toolkit's folder in CUDA_HOME")

// Sanitizer returns the path of compute-sanitizer. It fails with ErrNoSanitizer if the program isn't installed.
func Sanitizer() (string, error) {
	if path := findTool("compute-sanitizer"); path != "" {
		return path, nil
	}
	return "", ErrNoSanitizer
}

// toolkits are the usual folders of the CUDA toolkit.
var toolkits = []string{"/usr/local/cuda", "/opt/cuda", "/opt/cuda/toolkit"}

// findTool returns the path of a program of the CUDA toolkit, or "" if the program is missing. It searches PATH, then CUDA_HOME, and then
// toolkits.
func findTool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, home := range append([]string{os.Getenv("CUDA_HOME")}, toolkits...) {
		if path, err := exec.LookPath(filepath.Join(home, "bin", name)); home != "" && err == nil {
			return path
		}
	}
	return ""
}

// Fatbin combines cubins for the given compute capabilities in one fatbin. The fatbin isn't compressed, so the operator's description can
// be read from it. Fatbin fails with ErrNoFatbinary if fatbinary isn't installed.
func Fatbin(ctx context.Context, computes []string, cubins [][]byte) ([]byte, error) {
	program := findTool("fatbinary")
	if program == "" {
		return nil, ErrNoFatbinary
	}
	folder, err := os.MkdirTemp("", "millrace-fatbin-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	output := filepath.Join(folder, "out.fatbin")
	args := []string{"-64", "-compress=false", "--create=" + output}
	for i, cubin := range cubins {
		architecture := strings.ReplaceAll(computes[i], ".", "")
		path := filepath.Join(folder, "sm_"+architecture+compiled.CubinSuffix)
		if err := os.WriteFile(path, cubin, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--image3=kind=elf,sm="+architecture+",file="+path)
	}
	if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return os.ReadFile(output)
}

// WriteFile replaces a file atomically. A process that reads the file sees either the old contents or the new contents.
func WriteFile(path string, contents []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails after the rename
	_, err = f.Write(contents)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
