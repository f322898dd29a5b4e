package compiled

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Suffixes of an operator's files. The operator entropy has its source in entropy.cu and its library for the CPU in entropy.cpu.so.
const (
	SourceSuffix = ".cu"     // compiled when the worker starts
	CubinSuffix  = ".cubin"  // for GPUs of one compute capability
	FatbinSuffix = ".fatbin" // for several
	PTXSuffix    = ".ptx"    // compiled by the driver
	CPUSuffix    = ".cpu.so"
	HostSuffix   = ".so" // a library with host code that launches kernels: the operator's only file
)

// GPUSuffixes are the suffixes of files with code for GPUs, in the order in which the worker tries them.
var GPUSuffixes = []string{CubinSuffix, FatbinSuffix, PTXSuffix}

// Suffixes are all suffixes. One that ends with another comes before it.
var Suffixes = append(append([]string{SourceSuffix}, GPUSuffixes...), CPUSuffix, HostSuffix)

// CutSuffix divides the path of an operator's file: "a/entropy.cpu.so" into "a/entropy" and ".cpu.so". The suffix of any other file is "".
func CutSuffix(path string) (stem, suffix string) {
	for _, suffix := range Suffixes {
		if stem, ok := strings.CutSuffix(path, suffix); ok {
			return stem, suffix
		}
	}
	return path, ""
}

// ReadSource returns the name of the operator in a source file, and the file's text. The error says what is wrong with the name or the file.
func ReadSource(path string) (name string, text []byte, err error) {
	name, ok := strings.CutSuffix(filepath.Base(path), SourceSuffix)
	if !ok {
		return "", nil, fmt.Errorf("%s: the source of an operator has a name that ends with %s", path, SourceSuffix)
	}
	if err := CheckName(name); err != nil {
		return "", nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err = readFile(path, "source file", 1<<20)
	return name, text, err
}

// ReadCode returns the contents of a file with code for GPUs.
func ReadCode(path string) ([]byte, error) { return readFile(path, "file", 64<<20) }

// readFile returns the contents of a regular file of at most that many bytes.
func readFile(path, kind string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: not a %s of at most %d KiB", path, kind, most>>10)
	}
	return os.ReadFile(path)
}

// ReadCompiled returns the description in what a compiler made of a source file. The operator must have the name of the file, and be
// allowed to have it.
func ReadCompiled(source string, code []byte) (*Description, error) {
	d, err := Read(code)
	if err != nil {
		return nil, fmt.Errorf("%s has no operator: declare one with MILLRACE_OPERATOR and its code with MILLRACE_RECORD (%w)", source, err)
	}
	if err := CheckName(d.Name); err != nil {
		return nil, fmt.Errorf("%s: MILLRACE_OPERATOR: %w", source, err)
	}
	if name := strings.TrimSuffix(filepath.Base(source), SourceSuffix); d.Name != name {
		return nil, fmt.Errorf("%s declares the operator %q: rename the file to %s%s, or the operator to %s", source, d.Name, d.Name, SourceSuffix, name)
	}
	return d, nil
}

// SourceOption returns the compiler's option that writes the SHA-256 of the source file into the description: -DMILLRACE_SOURCE= and the
// bytes, separated by commas.
func SourceOption(text []byte) string {
	sum := sha256.Sum256(text)
	numbers := make([]string, len(sum))
	for i, b := range sum {
		numbers[i] = strconv.Itoa(int(b))
	}
	return "-DMILLRACE_SOURCE=" + strings.Join(numbers, ",")
}
