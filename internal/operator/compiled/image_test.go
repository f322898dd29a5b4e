package compiled

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// fatbin returns a container with the given contents.
func fatbin(all ...[]byte) []byte {
	var entries []byte
	for _, contents := range all {
		const header = 64
		entry := binary.LittleEndian.AppendUint32([]byte{2, 0, 1, 1}, header)
		entry = binary.LittleEndian.AppendUint64(entry, uint64(len(contents)))
		entries = append(append(entries, entry...), make([]byte, header-len(entry))...)
		entries = append(entries, contents...)
	}
	file := append(bytes.Clone(fatbinMagic), 1, 0, 16, 0)
	return append(binary.LittleEndian.AppendUint64(file, uint64(len(entries))), entries...)
}

// ptx returns PTX with the given list of numbers.
func ptx(bytes int, list string) []byte {
	return fmt.Appendf(nil, "//\n.version 8.4\n.target sm_80\n.global .align 8 .b8 %s[%d] = {%s};\n", symbol, bytes, list)
}

func TestPTXHasItsBytesAsText(t *testing.T) {
	data, err := find(ptx(6, "77, 73,1"))
	if err != nil || !bytes.Equal(data, []byte{77, 73, 1, 0, 0, 0}) {
		t.Errorf("%v, %v", data, err)
	}
	for name, text := range map[string][]byte{
		"too many": ptx(2, "1,2,3"), "no number": ptx(3, "1,x"), "above 255": ptx(3, "256"), "negative": ptx(-1, "1"), "huge": ptx(1<<30, "1"),
		"no list": []byte(".version 8.4\n" + symbol + "[3];"), "cut off": []byte(".version 8.4\n" + symbol + "[3] = {1, 2"), "other": []byte(".version 8.4"),
	} {
		if data, err := find(text); err == nil {
			t.Errorf("%s: %v", name, data)
		}
	}
}

func TestFatbinHasItInAnyEntry(t *testing.T) {
	file := fatbin([]byte("compressed"), ptx(4, "9,8"), ptx(4, "7"))
	data, err := find(file)
	if err != nil || !bytes.Equal(data, []byte{9, 8, 0, 0}) {
		t.Errorf("%v, %v", data, err)
	}
	for cut := range file {
		if _, err := find(file[:cut]); (err == nil) != (cut > bytes.IndexByte(file, '}')) {
			t.Errorf("the first %d of %d bytes: %v", cut, len(file), err)
		}
	}
	if _, err := find(fatbin([]byte("compressed"))); err == nil || !strings.Contains(err.Error(), "--no-compress") {
		t.Errorf("compressed code: error %v", err)
	}
}

// TestCompressedFatbinSaysHowToMakeOne uses the default output of nvcc.
func TestCompressedFatbinSaysHowToMakeOne(t *testing.T) {
	toolkit := cudaToolkit()
	if toolkit == "" {
		t.Skip("NOT TESTED: THERE IS NO CUDA TOOLKIT HERE (CUDA_HOME)")
	}
	all := compilers(t)
	fatbin := &all[slices.IndexFunc(all, func(c compiler) bool { return c.name == "fatbin" })]
	if fatbin.missing != "" {
		t.Skip("NOT TESTED: " + fatbin.missing)
	}
	compressed := compiler{command: func(source, output string) *exec.Cmd {
		command := fatbin.command(source, output)
		command.Args[slices.Index(command.Args, "--no-compress")] = "-Xfatbin=-compress-all" // compresses cubins, too
		return command
	}}
	file, err := compressed.compile(entropy)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "--no-compress") {
		t.Errorf("error %v", err)
	}
}

// TestTheMagicNumberMayBeInOtherData: code may compare with the magic number, and a compressor may copy it.
func TestTheMagicNumberMayBeInOtherData(t *testing.T) {
	want, err := find(library(t, entropy))
	if err != nil {
		t.Fatal(err)
	}
	other := []byte(magic + "is the beginning of a description")
	if got, err := find(slices.Concat(other, other, want)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
	if _, err := find(slices.Concat(bytes.Repeat(other, 256), want)); err == nil {
		t.Error("there is no bound")
	}
	newer := bytes.Clone(want)
	binary.LittleEndian.PutUint32(newer[len(magic)+8:], Contract+1)
	var version *VersionError
	if _, err := find(newer); !errors.As(err, &version) || version.Operator != "entropy" {
		t.Errorf("an operator with a newer contract: %v", err)
	}
}
