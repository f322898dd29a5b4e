// Package testbuild compiles operators and libraries for tests. It keeps the compilers' output between test runs, because a compiler
// takes longer than most tests.
//
// The tests of operators, devices and cmd/worker use it, except tests of the compilation itself. Start reading with Compile and
// Output.
package testbuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Compile compiles an operator for the CPU with compile, which is cpulib.Compile. source is the operator's source file, and
// output is the path of the library to write. Compile reuses the library of an earlier run if all inputs of the build are the
// same. It returns the error of compile.
//
// compile is an argument because packages that cpulib imports use this package in their tests.
func Compile[D any](ctx context.Context, compile func(ctx context.Context, source, output string) (D, error), source, output string) error {
	hash, err := Hash([]string{source}, nil, os.Getenv("CXX"), "c++", "g++", "clang++")
	if err != nil { // compile returns the error about the source
		_, err = compile(ctx, source, output)
		return err
	}
	path, err := Kept(hash, func(output string) error {
		_, err := compile(ctx, source, output)
		return err
	})
	if err != nil {
		return err
	}
	library, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_ = os.Remove(output) // a process that uses the old library keeps it
	return os.WriteFile(output, library, 0o600)
}

// Output returns the contents of the file that a compiler's command writes. The argument of command is the path of that file.
// sources are the files that the command compiles.
func Output(sources []string, command func(output string) *exec.Cmd) ([]byte, error) {
	path, err := Built(sources, command)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Built is like Output, but returns the path of the file. All tests share the file, so the caller must not change it.
func Built(sources []string, command func(output string) *exec.Cmd) (path string, err error) {
	args := command("OUTPUT").Args
	hash, err := Hash(sources, args[1:], args[0], "c++")
	if err != nil {
		return "", err
	}
	return Kept(hash, func(output string) error {
		if log, err := command(output).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, log)
		}
		return nil
	})
}

// Kept returns the path of the file that build writes. It reuses the file that an earlier run kept under the same hash. It returns the
// error of build, or an error if the file can't be kept.
func Kept(hash string, build func(output string) error) (path string, err error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	folder = filepath.Join(folder, "millrace-test")
	path = filepath.Join(folder, hash+".so")
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	fresh, err := os.CreateTemp(folder, "build-*.so")
	if err != nil {
		return "", err
	}
	_ = fresh.Close()                              // build opens the file itself
	defer func() { _ = os.Remove(fresh.Name()) }() // fails after the rename
	if err := build(fresh.Name()); err != nil {
		return "", err
	}
	trim(folder)
	return path, os.Rename(fresh.Name(), path)
}

// unused is the time without use after which a file is removed.
const unused = 7 * 24 * time.Hour

// trim removes files that are unused.
func trim(folder string) {
	files, _ := filepath.Glob(filepath.Join(folder, "*.so")) // the pattern is valid
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > unused {
			_ = os.Remove(file) // a file that can't be removed stays
		}
	}
}
