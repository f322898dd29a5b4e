package compiled

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

// Suffixes are all suffixes. A suffix that ends with another suffix precedes that suffix.
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

// These constants are the positions of fields in the 64-bit ELF header, and the value of CUDA in the field machine.
const (
	elfHeaderBytes = 64
	machineAt      = 18 // uint16
	versionAt      = 20 // uint32
	machineCUDA    = 190
)

// asELF returns a reader of the file. In a cubin, the ELF version is the version of CUDA, so asELF replaces it with the
// version that debug/elf accepts.
func asELF(file []byte) io.ReaderAt {
	if len(file) >= elfHeaderBytes && binary.LittleEndian.Uint16(file[machineAt:]) == machineCUDA {
		file = bytes.Clone(file)
		binary.LittleEndian.PutUint32(file[versionAt:], uint32(elf.EV_CURRENT))
	}
	return bytes.NewReader(file)
}

// find returns the description in a file. Other bytes may follow the description.
func find(file []byte) ([]byte, error) {
	if len(file) >= fatbinHeaderBytes && bytes.HasPrefix(file, fatbinMagic) {
		return findFatbin(file)
	}
	return findIn(file)
}

// findELF returns the contents of an ELF section, starting at the description.
func findELF(file []byte) (data []byte, err error) {
	defer func() { // debug/elf doesn't promise to be robust against bad input
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: %v", errNoOperator, p)
		}
	}()
	f, err := elf.NewFile(asELF(file))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoOperator, err)
	}
	for _, list := range []func() ([]elf.Symbol, error){f.DynamicSymbols, f.Symbols} {
		symbols, err := list()
		if err != nil {
			continue // a cubin has no dynamic symbols, and a stripped library has only these
		}
		for _, s := range symbols {
			if s.Name == symbol && int(s.Section) < len(f.Sections) {
				return contents(f, s)
			}
		}
	}
	return nil, fmt.Errorf("%w: it has no symbol %s", errNoOperator, symbol)
}

// contents returns the contents of the symbol's section, starting at the symbol. In a shared library, a symbol's value is an
// address. In a cubin, sections have no addresses.
func contents(f *elf.File, s elf.Symbol) ([]byte, error) {
	section := f.Sections[s.Section]
	if section.Type == elf.SHT_NOBITS || section.Size > maxFile {
		return nil, fmt.Errorf("%w: section %s has no contents", errNoOperator, section.Name)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoOperator, err)
	}
	if at := s.Value - section.Addr; s.Value >= section.Addr && at <= uint64(len(data)) {
		return data[at:], nil
	}
	return nil, fmt.Errorf("%w: %s is outside its section", errNoOperator, symbol)
}

// fatbinMagic begins a fatbin, which is a container for cubins and PTX.
var fatbinMagic = []byte{0x50, 0xed, 0x55, 0xba}

var errCompressed = errors.New("the code in the fatbin is compressed, so its description can't be read: compile with nvcc --no-compress, or with `worker operator build`")

// These constants are the sizes of the header of a fatbin and of its entries' headers.
const (
	fatbinHeaderBytes = 16
	entryHeaderBytes  = 16 // the part that is read: uint16 kind, uint16, uint32 size of the header, uint64 size of the contents
	maxEntries        = 256
)

// findFatbin returns the description from the first entry that has one. The entries are the cubins and PTX in the fatbin.
func findFatbin(file []byte) ([]byte, error) {
	at := uint64(binary.LittleEndian.Uint16(file[6:]))
	end := min(uint64(len(file)), at+binary.LittleEndian.Uint64(file[8:]))
	for range maxEntries {
		if at > end || end-at < entryHeaderBytes {
			break
		}
		header, size := uint64(binary.LittleEndian.Uint32(file[at+4:])), binary.LittleEndian.Uint64(file[at+8:])
		if header < entryHeaderBytes || header > end-at || size > end-at-header {
			return nil, fmt.Errorf("%w: the fatbin is incomplete", errNoOperator)
		}
		contents := file[at+header : at+header+size]
		if data, err := findIn(contents); err == nil {
			return data, nil
		}
		at += header + size
	}
	return nil, errCompressed
}

// findIn returns the description in a cubin or in PTX.
func findIn(contents []byte) ([]byte, error) {
	if isPTX(contents) {
		return findPTX(contents)
	}
	return findELF(contents)
}

// isPTX reports whether a file is the text of PTX.
func isPTX(file []byte) bool {
	const begin = 64 << 10 // comments precede the version
	return bytes.Contains(file[:min(len(file), begin)], []byte(".version")) && !bytes.ContainsRune(bytes.TrimRight(file, "\x00"), 0)
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
