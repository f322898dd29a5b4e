package testbuild

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// environment has the names of the environment variables that compilers read.
var environment = []string{
	"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
}

// Hash returns a hash of everything that a build depends on. It includes the source files with all files in their folders, the kernels
// and their headers, the options, and the compilers with their environment variables. A missing compiler also changes the hash. If an
// option is the path of a file, the hash includes the file. Paths are relative to the repository.
func Hash(sources, options []string, compilers ...string) (string, error) {
	h := sha256.New()
	common, err := ofRepository()
	add(h, "repository", common)
	for i, source := range sources {
		if err == nil {
			err = addFiles(h, filepath.Dir(source), source)
		}
		if folder := filepath.Dir(source); err == nil && !slices.ContainsFunc(sources[:i], func(s string) bool { return filepath.Dir(s) == folder }) {
			err = addFiles(h, folder, neighbors(folder, "*")...)
		}
	}
	for _, option := range options {
		if file := identity(option); file != "" {
			option = file
		}
		add(h, "option", strings.ReplaceAll(option, Root(), "ROOT"))
	}
	for _, compiler := range compilers {
		path, _ := exec.LookPath(compiler)
		add(h, "compiler", identity(path))
	}
	for _, name := range environment {
		add(h, name, os.Getenv(name))
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// Root returns the folder of the repository.
var Root = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	for folder := filepath.Dir(file); filepath.IsAbs(file); folder = filepath.Dir(folder) {
		if exists(filepath.Join(folder, "go.mod")) && exists(filepath.Join(folder, "kernels")) || folder == filepath.Dir(folder) {
			return folder
		}
	}
	folder, _ := os.Getwd() // built with -trimpath: tests start in the folder of their package
	for !exists(filepath.Join(folder, "kernels")) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
	}
	return folder
})

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ofRepository returns a hash of the kernels and of the packages that compile operators. It is computed once per process.
var ofRepository = sync.OnceValues(func() (string, error) {
	h := sha256.New()
	err := addFiles(h, Root(), neighbors(Root(), "kernels/*", "kernels/*/*", "kernels/*/*/*", "kernels/*/*/*/*", "internal/operator/compiled/*.go",
		"internal/operator/cpulib/*.go", "internal/operator/testbuild/*.go")...)
	return hex.EncodeToString(h.Sum(nil)), err
})

// suffixes are the suffixes of files that a build can depend on.
var suffixes = []string{".cu", ".cuh", ".cpp", ".c", ".h", ".hpp", ".inc", ".map", ".go"}

// neighbors returns the files in a folder that match the patterns and have one of suffixes. It omits Go tests.
func neighbors(folder string, patterns ...string) (files []string) {
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(folder, pattern)) // the patterns are valid
		for _, file := range found {
			if slices.Contains(suffixes, filepath.Ext(file)) && !strings.HasSuffix(file, "_test.go") {
				files = append(files, file)
			}
		}
	}
	return files
}

// addFiles adds files to a hash, with their names relative to a folder.
func addFiles(h hash.Hash, folder string, files ...string) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		add(h, name, string(text))
	}
	return nil
}

// add adds a name and a text, with their lengths, to a hash.
func add(h hash.Hash, name, text string) {
	_, _ = fmt.Fprintf(h, "%d %s %d %s\n", len(name), name, len(text), text) // a hash returns no error
}

// largeFile is the size in bytes from which identity uses a file's path, size and time instead of its contents.
const largeFile = 1 << 20

// identity returns a text that differs between files, or "" if path isn't a regular file.
func identity(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if info.Size() < largeFile {
		if text, err := os.ReadFile(path); err == nil {
			return filepath.Base(path) + " " + string(text)
		}
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano())
}
