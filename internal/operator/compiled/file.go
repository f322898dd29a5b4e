package compiled

import (
	"bytes"
	"crypto/sha256"
	"errors"
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
	FatbinSuffix = ".fatbin" // for GPUs of several compute capabilities
	PTXSuffix    = ".ptx"    // compiled by the driver
	CPUSuffix    = ".cpu.so"
	HostSuffix   = ".so" // a library with host code that launches kernels: the operator's only file
)

// GPUSuffixes are the suffixes of files with code for GPUs, in the order in which the worker tries them.
var GPUSuffixes = []string{CubinSuffix, FatbinSuffix, PTXSuffix}

// Suffixes are all suffixes. A suffix that ends with another suffix comes first.
var Suffixes = append(append([]string{SourceSuffix}, GPUSuffixes...), CPUSuffix, HostSuffix)

// CutSuffix divides the path of an operator's file into stem and suffix, for example "a/entropy" and ".cpu.so". For any other file, suffix
// is "".
func CutSuffix(path string) (stem, suffix string) {
	for _, suffix := range Suffixes {
		if stem, ok := strings.CutSuffix(path, suffix); ok {
			return stem, suffix
		}
	}
	return path, ""
}

// ReadSource returns the name of the operator in a source file, and the file's text. It returns an error if the name or the file isn't
// valid.
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

// readFile returns the contents of a regular file of up to limit bytes. kind is the name of such a file in errors.
func readFile(path, kind string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s: not a %s of at most %d KiB", path, kind, limit>>10)
	}
	return os.ReadFile(path)
}

// ReadCompiled returns the description in code that was compiled from a source file. It returns an error unless the operator has the
// name of the file and CheckName permits that name.
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

// SourceOption returns the compiler option that writes the SHA-256 of the source file into the description. The option is
// -DMILLRACE_SOURCE= and the bytes, separated by commas.
func SourceOption(text []byte) string {
	sum := sha256.Sum256(text)
	numbers := make([]string, len(sum))
	for i, b := range sum {
		numbers[i] = strconv.Itoa(int(b))
	}
	return "-DMILLRACE_SOURCE=" + strings.Join(numbers, ",")
}

// symbol is the name of the description in a compiled operator.
const symbol = "millrace_operator_description"

// maxFile is the maximum size of a compiled operator in bytes.
const maxFile = 256 << 20

// ReadFile returns the description in a cubin, a fatbin without compression, PTX, or a shared library. It doesn't load the code.
func ReadFile(path string) (*Description, error) {
	file, err := readFile(path, "file", maxFile)
	if err != nil {
		return nil, err
	}
	d, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.Folder = filepath.Dir(path)
	return d, nil
}

// Read is like ReadFile for the contents of a file. It leaves Folder empty.
func Read(file []byte) (*Description, error) {
	data, err := find(file)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

var errNoOperator = errors.New("not a compiled operator: build one with `worker operator build NAME.cu`")

// fatbinMagic begins a fatbin, which is a container for cubins and PTX.
var fatbinMagic = []byte{0x50, 0xed, 0x55, 0xba}

var errCompressed = errors.New("the code in the fatbin is compressed, so its description can't be read: compile with nvcc --no-compress, or with `worker operator build`")

// find returns the first valid description in a file. Other bytes may follow it. Cubins, libraries and fatbins of cubins contain its bytes.
// PTX contains them as text.
func find(file []byte) (data []byte, err error) {
	const maxPlaces = 256
	data = file
	for range maxPlaces {
		at := bytes.Index(data, []byte(magic))
		if at < 0 {
			break
		}
		data = data[at:]
		if _, err = Decode(data); err == nil {
			return data, nil
		}
		data = data[len(magic):] // other data, such as a comparison with magic
	}
	text, notPTX := findPTX(file)
	switch {
	case errors.As(err, new(*VersionError)):
		return nil, err
	case notPTX == nil:
		return text, nil
	case bytes.HasPrefix(file, fatbinMagic):
		return nil, errCompressed
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoOperator, err)
	}
	return nil, notPTX
}

// findPTX returns the description in the text of PTX, which declares it as
//
//	.global .align 8 .b8 millrace_operator_description[552] = {77, 73, ...};
//
// The list may omit zeros at the end.
func findPTX(text []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(text, []byte(symbol+"["))
	if !found {
		return nil, fmt.Errorf("%w: it has no symbol %s", errNoOperator, symbol)
	}
	count, rest, _ := bytes.Cut(rest, []byte("]"))
	n, err := strconv.Atoi(string(count))
	if err != nil || n <= 0 || n > maxDescription {
		return nil, fmt.Errorf("%w: %s has %.20q bytes", errNoOperator, symbol, count)
	}
	begin, rest, _ := bytes.Cut(rest, []byte("{"))
	list, _, closed := bytes.Cut(rest, []byte("}"))
	if string(bytes.TrimSpace(begin)) != "=" || !closed {
		return nil, fmt.Errorf("%w: %s has no contents", errNoOperator, symbol)
	}
	data := make([]byte, 0, n)
	for number := range bytes.SplitSeq(list, []byte(",")) {
		b, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 8)
		if err != nil || len(data) == n {
			return nil, fmt.Errorf("%w: %s isn't a list of %d bytes", errNoOperator, symbol, n)
		}
		data = append(data, byte(b))
	}
	return data[:n], nil
}
