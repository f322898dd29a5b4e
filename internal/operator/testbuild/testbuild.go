// Package testbuild compiles operators and libraries for tests. It keeps what the compilers made in a folder that outlives the tests,
// because a compiler takes longer than most tests.
//
// The tests of operators, devices and cmd/worker use it. A test of the compiling itself runs the compiler instead. Start reading with
// Compile and Output.
package testbuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing/fstest"

	"millrace/internal/operator/cache"
)

// Compile compiles an operator for the CPU with compile, which is cpulib.Compile. It takes what an earlier run kept if everything that
// the library depends on is the same. The error is that of compile.
//
// compile is an argument because packages that cpulib imports use this package in their tests.
func Compile[D any](ctx context.Context, compile func(ctx context.Context, source, output string) (D, error), source, output string) error {
	hash, err := Hash([]string{source}, nil, os.Getenv("CXX"), "c++", "g++", "clang++")
	if err != nil { // compile tells what is wrong with the source
		_, err = compile(ctx, source, output)
		return err
	}
	library, err := kept(hash, func() ([]byte, error) {
		if _, err := compile(ctx, source, output); err != nil {
			return nil, err
		}
		return os.ReadFile(output)
	})
	if err != nil {
		return err
	}
	_ = os.Remove(output) // a process that has opened the library keeps the old one
	return os.WriteFile(output, library, 0o600)
}

// Output returns the file that a compiler's command writes to output. sources are the files that the command compiles.
func Output(sources []string, command func(output string) *exec.Cmd) ([]byte, error) {
	args := command("OUTPUT").Args
	hash, err := Hash(sources, args[1:], args[0], "c++")
	if err != nil {
		return nil, err
	}
	return kept(hash, func() ([]byte, error) {
		folder, err := os.MkdirTemp("", "millrace-build-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		output := filepath.Join(folder, "output.so")
		if log, err := command(output).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, log)
		}
		return os.ReadFile(output)
	})
}

// Folder returns the folder that outlives the tests. It makes the folder if that is missing.
func Folder() (string, error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir()
	}
	folder = filepath.Join(folder, "millrace-test")
	return folder, os.MkdirAll(folder, 0o700)
}

// kept returns what has been kept under a hash, or what compile returns.
func kept(hash string, compile func() ([]byte, error)) ([]byte, error) {
	folder, err := Folder()
	if err != nil {
		return compile()
	}
	c, err := cache.Open(filepath.Join(folder, "operators"))
	if err != nil {
		return compile()
	}
	key := cache.Key{Source: []byte(hash), Headers: fstest.MapFS{}}
	image, _, _, err := c.Image(key, compile) // a test passes also if nothing can be kept
	return image, err
}
