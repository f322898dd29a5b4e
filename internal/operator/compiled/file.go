package compiled

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// symbol is the name of the description in a compiled operator.
const symbol = "millrace_operator_description"

// mostFile is the maximum size of a compiled operator in bytes.
const mostFile = 256 << 20

// ReadFile returns the description in a cubin, a fatbin without compression, PTX, or a shared library. It doesn't load the code.
func ReadFile(path string) (*Description, error) {
	file, err := readFile(path, "file", mostFile)
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

// Read is like ReadFile for the contents of a file.
func Read(file []byte) (*Description, error) {
	data, err := find(file)
	if err != nil {
		return nil, err
	}
	return Decode(data)
}

// errNoOperator says what a file should have been.
var errNoOperator = errors.New("not a compiled operator: build one with `worker operator build NAME.cu`")

// The ELF header of 64 bits: where the fields are that asELF needs.
const (
	elfHeaderBytes = 64
	machineAt      = 18 // uint16
	versionAt      = 20 // uint32
	machineCUDA    = 190
)

// asELF returns the file with the version that debug/elf accepts. In a cubin, the ELF header has the version of CUDA there.
func asELF(file []byte) io.ReaderAt {
	if len(file) < elfHeaderBytes || binary.LittleEndian.Uint16(file[machineAt:]) != machineCUDA {
		return bytes.NewReader(file)
	}
	header := bytes.Clone(file[:elfHeaderBytes])
	binary.LittleEndian.PutUint32(header[versionAt:], uint32(elf.EV_CURRENT))
	return overlay{header, file}
}

// overlay is a file whose first bytes are replaced.
type overlay struct{ first, file []byte }

// ReadAt implements io.ReaderAt.
func (o overlay) ReadAt(to []byte, at int64) (int, error) {
	n, err := bytes.NewReader(o.file).ReadAt(to, at)
	if at < int64(len(o.first)) {
		copy(to[:n], o.first[at:])
	}
	return n, err
}

// find returns the description in a file, perhaps with bytes that follow it.
func find(file []byte) ([]byte, error) {
	if len(file) >= fatbinHeaderBytes && bytes.HasPrefix(file, fatbinMagic) {
		return findFatbin(file)
	}
	return findIn(file)
}

// findELF returns the contents of the section from the description on.
func findELF(file []byte) (data []byte, err error) {
	defer func() { // debug/elf is robust against bad input, but doesn't promise it
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
			continue // a cubin has no dynamic symbols, and a stripped library has no others
		}
		for _, s := range symbols {
			if s.Name == symbol && int(s.Section) < len(f.Sections) {
				return contents(f, s)
			}
		}
	}
	return nil, fmt.Errorf("%w: it has no symbol %s", errNoOperator, symbol)
}

// contents returns what the symbol's section contains from the symbol on. In a shared library, a symbol's value is an address; in a
// cubin, sections have no addresses.
func contents(f *elf.File, s elf.Symbol) ([]byte, error) {
	section := f.Sections[s.Section]
	if section.Type == elf.SHT_NOBITS || section.Size > mostFile {
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
