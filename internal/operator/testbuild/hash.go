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

// Hash returns a hash of everything that a build depends on: the source files and their neighbors, which they may include, the kernels and
// their headers, the options, the compilers and their environment variables. A compiler that is missing counts too. An option that is the
// path of a file counts as the file. Of other paths in the repository, that of the repository doesn't count.
func Hash(sources, options []string, compilers ...string) (string, error) {
	common, err := ofRepository()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	add(h, "repository", common)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		add(h, filepath.Base(source), string(text))
	}
	for _, folder := range foldersOf(sources) {
		if err := addFiles(h, folder, filepath.Join(folder, "*")); err != nil {
			return "", err
		}
	}
	for _, option := range options {
		if file, ok := fileIdentity(option); ok {
			option = file
		}
		add(h, "option", strings.ReplaceAll(option, Root(), "ROOT"))
	}
	for _, compiler := range compilers {
		add(h, "compiler", identity(compiler))
	}
	for _, name := range []string{
		"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
	} {
		add(h, name, os.Getenv(name))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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

// ofRepository returns a hash of the kernels, and of the packages that compile operators. It is the same for the whole process.
var ofRepository = sync.OnceValues(func() (string, error) {
	h, root := sha256.New(), Root()
	for _, pattern := range []string{
		"kernels/*", "kernels/*/*", "kernels/*/*/*", "kernels/*/*/*/*",
		"internal/operator/compiled/*.go", "internal/operator/develop/*.go", "internal/operator/testbuild/*.go",
	} {
		if err := addFiles(h, root, filepath.Join(root, pattern)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// suffixes are the suffixes of files that a build can depend on.
var suffixes = []string{".cu", ".cuh", ".cpp", ".c", ".h", ".hpp", ".inc", ".map", ".go"}

// addFiles adds the files that match a pattern, with their names relative to a folder, to a hash. Tests in Go don't count.
func addFiles(h hash.Hash, folder, pattern string) error {
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		if !slices.Contains(suffixes, filepath.Ext(file)) || strings.HasSuffix(file, "_test.go") {
			continue
		}
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
	return err
}

// foldersOf returns the folders of files, each once.
func foldersOf(files []string) (folders []string) {
	for _, file := range files {
		if folder := filepath.Dir(file); !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// add adds a name and a text to a hash, with their lengths.
func add(h hash.Hash, name, text string) {
	_, _ = fmt.Fprintf(h, "%d %s %d %s\n", len(name), name, len(text), text) // a hash returns no error
}

// identities are the identities of compilers by their path, so that a process asks each compiler once.
var identities sync.Map

// identity returns what tells a compiler from others: its file, and what it says about its version.
func identity(compiler string) string {
	path, err := exec.LookPath(compiler)
	if err != nil {
		return "none"
	}
	if known, ok := identities.Load(path); ok {
		return known.(string)
	}
	file, _ := fileIdentity(path)
	said, err := exec.Command(path, "--version").CombinedOutput()
	text := fmt.Sprintf("%s %v %s", file, err, said)
	identities.Store(path, text)
	return text
}

// largeFile is the size in bytes from which a file counts with its path and time instead of its contents.
const largeFile = 1 << 20

// fileIdentity returns what tells a file from others. ok is false if there is no such file.
func fileIdentity(path string) (identity string, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	if info.Size() < largeFile {
		if text, err := os.ReadFile(path); err == nil {
			return filepath.Base(path) + " " + string(text), true
		}
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()), true
}
