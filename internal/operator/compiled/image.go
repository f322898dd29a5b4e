package compiled

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// This file finds the description in the kinds of files that CUDA's compilers write besides cubins: fatbins and PTX.

// fatbinMagic begins a fatbin, which is a container for cubins and PTX.
var fatbinMagic = []byte{0x50, 0xed, 0x55, 0xba}

// errCompressed says how to make a fatbin that can be read.
var errCompressed = errors.New("the code in the fatbin is compressed, so its description can't be read: compile with nvcc --no-compress, or with `worker operator build`")

// The header of a fatbin, and that of each of its entries.
const (
	fatbinHeaderBytes = 16
	entryHeaderBytes  = 16 // of what is read of it: uint16 kind, uint16, uint32 size of the header, uint64 size of the contents
	mostEntries       = 256
)

// findFatbin returns the description in the first entry of a fatbin that has one.
func findFatbin(file []byte) ([]byte, error) {
	at := uint64(binary.LittleEndian.Uint16(file[6:]))
	end := min(uint64(len(file)), at+binary.LittleEndian.Uint64(file[8:]))
	for range mostEntries {
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
	const begin = 64 << 10 // the version comes after comments
	return bytes.Contains(file[:min(len(file), begin)], []byte(".version")) && !bytes.ContainsRune(bytes.TrimRight(file, "\x00"), 0)
}

// findPTX returns the description in the text of PTX, which declares it as
//
//	.global .align 8 .b8 millrace_operator_description[552] = {77, 73, ...};
//
// Bytes that the list lacks are zeros.
func findPTX(text []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(text, []byte(symbol+"["))
	if !found {
		return nil, fmt.Errorf("%w: it has no symbol %s", errNoOperator, symbol)
	}
	count, rest, _ := bytes.Cut(rest, []byte("]"))
	n, err := strconv.Atoi(string(count))
	if err != nil || n <= 0 || n > mostDescription {
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
