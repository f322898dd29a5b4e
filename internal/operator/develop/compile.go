// Package develop is for people who write operators: it starts a new one, compiles it for the CPU, and reads samples
// (docs/adr/0040-operators-of-your-own.md).
//
// The command `worker operator` uses it, together with package conformance. Start reading with Compile, then ReadSamples.
package develop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"millrace/internal/operator/compiled"
	include "millrace/kernels/include"
)

// Suffixes of an operator's files. The operator entropy has its source in entropy.cu and its library for the CPU in entropy.cpu.so.
const (
	SourceSuffix = ".cu"
	CPUSuffix    = ".cpu.so"
	CubinSuffix  = ".cubin"
	FatbinSuffix = ".fatbin"
	PTXSuffix    = ".ptx"
	HostSuffix   = ".so" // a library with host code that launches kernels: the operator's only file
)

// GPUSuffixes are the suffixes of files with code for GPUs.
var GPUSuffixes = []string{CubinSuffix, FatbinSuffix, PTXSuffix}

// mostSource is the maximum size of a source file in bytes.
const mostSource = 1 << 20

// CompileError is the error for a source file that doesn't compile.
type CompileError struct {
	Source string
	Log    string // what the compiler wrote, with file, line and caret
}

// Error returns what the compiler wrote.
func (e *CompileError) Error() string { return e.Source + " doesn't compile:\n" + e.Log }

// ErrNoCompiler is the error for a machine without a C++ compiler.
var ErrNoCompiler = errors.New("no C++ compiler: install one (Debian: apt-get install g++), or name one in the environment variable CXX")

// findCompiler returns the path of the machine's C++ compiler.
func findCompiler() (string, error) {
	if named := os.Getenv("CXX"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("the compiler that CXX names: %w", err)
		}
		return path, nil
	}
	for _, name := range []string{"c++", "g++", "clang++"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}

// cpuFlags are the compiler's flags for a CPU library. -ffp-contract=off gives the same floating-point results as on a GPU.
var cpuFlags = []string{"-std=c++17", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off"}

// Compile compiles the source file of an operator for the CPU, and returns its description. It writes the library to output when
// everything is right: a file with that name is replaced at once, and processes that use it are not disturbed. The name of the operator
// must be the name of the file.
//
// The error is a *CompileError if the source is wrong.
func Compile(ctx context.Context, source, output string) (*compiled.Description, error) {
	name, text, err := ReadSource(source)
	if err != nil {
		return nil, err
	}
	compiler, err := findCompiler()
	if err != nil {
		return nil, err
	}
	headers, err := os.MkdirTemp("", "millrace-headers-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(headers) }()
	if err := os.CopyFS(headers, include.Headers); err != nil {
		return nil, err
	}
	made, err := os.CreateTemp(filepath.Dir(output), "."+name+"-*.so")
	if err != nil {
		return nil, err
	}
	_ = made.Close()
	defer func() { _ = os.Remove(made.Name()) }()

	args := append([]string{}, cpuFlags...)
	args = append(args, "-I"+headers, compiled.SourceOption(text), "-x", "c++", source, "-o", made.Name())
	if log, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &CompileError{Source: source, Log: strings.ReplaceAll(string(log), headers+string(filepath.Separator), "")}
	}
	d, err := compiled.ReadFile(made.Name())
	if err != nil {
		return nil, fmt.Errorf("%s has no operator: declare one with MILLRACE_OPERATOR and its code with MILLRACE_RECORD (%w)", source, err)
	}
	if err := CheckName(source, d); err != nil {
		return nil, err
	}
	if err := os.Chmod(made.Name(), 0o644); err != nil { //nolint:gosec // a library is as public as its source
		return nil, err
	}
	return d, os.Rename(made.Name(), output)
}

// CheckName returns an error if the operator in a source file has the name of a built-in one, or doesn't have the name of the file.
func CheckName(source string, d *compiled.Description) error {
	if err := compiled.CheckName(d.Name); err != nil {
		return fmt.Errorf("%s: MILLRACE_OPERATOR: %w", source, err)
	}
	if name := strings.TrimSuffix(filepath.Base(source), SourceSuffix); d.Name != name {
		return fmt.Errorf("%s declares the operator %q: rename the file to %s%s, or the operator to %s", source, d.Name, d.Name, SourceSuffix, name)
	}
	return nil
}

// ReadSource returns the name of the operator in a source file, and the file's text.
func ReadSource(path string) (name string, text []byte, err error) {
	if name, err = nameOf(path); err != nil {
		return "", nil, err
	}
	text, err = readSource(path)
	return name, text, err
}

// nameOf returns the name of the operator in a source file.
func nameOf(source string) (string, error) {
	name, ok := strings.CutSuffix(filepath.Base(source), SourceSuffix)
	if !ok {
		return "", fmt.Errorf("%s: the source of an operator has a name that ends with %s", source, SourceSuffix)
	}
	if err := compiled.CheckName(name); err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	return name, nil
}

func readSource(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostSource {
		return nil, fmt.Errorf("%s: not a source file of at most %d KiB", path, mostSource>>10)
	}
	return os.ReadFile(path)
}
