package cpulib

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/operator/compiled"
	include "millrace/kernels/include"
)

// CompileError is the error for a source file that doesn't compile.
type CompileError struct {
	Source string
	Log    string // output of the compiler, with file, line and caret
}

// Error returns the path of the source file and the output of the compiler.
func (c *CompileError) Error() string { return c.Source + " doesn't compile:\n" + c.Log }

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

// flags are the compiler's flags for a library. With -ffp-contract=off, floating-point results are the same as on a GPU.
var flags = []string{"-std=c++17", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off"}

// Compile compiles the source file of an operator and returns its description. On success, it writes the library to output. It replaces an
// existing file atomically, so processes that use the old file keep it. The operator's name must be the file's name without the suffix.
//
// The error is a *CompileError if the compiler fails, and ErrNoCompiler if there is no compiler.
func Compile(ctx context.Context, source, output string) (*compiled.Description, error) {
	name, text, err := compiled.ReadSource(source)
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
	_ = made.Close()                              // the compiler writes the file
	defer func() { _ = os.Remove(made.Name()) }() // fails after the rename
	args := slices.Concat(flags, []string{"-I" + headers, compiled.SourceOption(text), "-x", "c++", source, "-o", made.Name()})
	if log, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &CompileError{Source: source, Log: strings.ReplaceAll(string(log), headers+string(filepath.Separator), "")}
	}
	code, err := os.ReadFile(made.Name())
	if err != nil {
		return nil, err
	}
	d, err := compiled.ReadCompiled(source, code)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(made.Name(), 0o644); err != nil { //nolint:gosec // a library is as public as its source
		return nil, err
	}
	return d, os.Rename(made.Name(), output)
}
