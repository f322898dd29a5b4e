package compiled

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/internal/operator/testbuild"
)

const (
	kernels  = "../../../kernels"
	headers  = kernels + "/include"
	entropy  = "../../../examples/operators/entropy/entropy.cu"
	kinds    = kernels + "/test/operators/kinds.cu"
	careless = kernels + "/test/operators/careless.cu"
	spread   = kernels + "/test/operators/spread.cu"
	inBlocks = kernels + "/test/operators/spread_block.cu"
	tally    = kernels + "/test/operators/tally.cu"
	stray    = kernels + "/test/operators/stray.cu"
	keywords = "../../../examples/operators/keywords/keywords.cu"
)

// compiler turns a source file into a compiled operator.
type compiler struct {
	name    string
	missing string // reason that the compiler is unavailable; empty if it is available
	command func(source, output string) *exec.Cmd
}

// compile compiles a source, or returns the cached output of an earlier test run.
func (c *compiler) compile(source string) ([]byte, error) {
	return testbuild.Output([]string{source}, func(output string) *exec.Cmd { return c.command(source, output) })
}

// compilers lists the compilers that must accept each source: a C++ compiler for the CPU, and nvcc and NVRTC for a GPU.
func compilers(t testing.TB) []compiler {
	t.Helper()
	cpu := compiler{name: "c++", command: func(source, output string) *exec.Cmd {
		return exec.Command("c++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
			"-ffp-contract=off", "-I"+headers, "-x", "c++", source, "-o", output)
	}}
	if _, err := exec.LookPath("c++"); err != nil {
		cpu.missing = "no C++ compiler"
	}
	toolkit := cudaToolkit()
	withNVCC := func(name string, kind ...string) compiler {
		return compiler{name: name, command: func(source, output string) *exec.Cmd {
			args := append([]string{"-std=c++17", "-Werror", "all-warnings", "--fmad=false", "-I" + headers, source, "-o", output}, kind...)
			return exec.Command(filepath.Join(toolkit, "bin/nvcc"), args...)
		}}
	}
	gpu := []compiler{
		withNVCC("cubin", "-arch=sm_80", "-cubin"), withNVCC("ptx", "-arch=compute_80", "-ptx"),
		withNVCC("fatbin", "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]", "-fatbin", "--no-compress"),
	}
	nvrtc := compiler{name: "nvrtc"}
	switch library := filepath.Join(toolkit, "lib64/libnvrtc.so"); {
	case toolkit == "":
		nvrtc.missing = "no CUDA toolkit"
	case cpu.missing != "":
		nvrtc.missing = cpu.missing
	case !exists(library) || !exists(filepath.Join(toolkit, "include/nvrtc.h")):
		nvrtc.missing = "the CUDA toolkit has no NVRTC"
	default:
		program := buildNVRTC(t, toolkit)
		nvrtc.command = func(source, output string) *exec.Cmd {
			return exec.Command(program, library, source, headers, "sm_80", output)
		}
	}
	for i := range gpu {
		switch {
		case toolkit == "":
			gpu[i].missing = "no CUDA toolkit"
		case cpu.missing != "":
			gpu[i].missing = cpu.missing
		}
	}
	return slices.Concat([]compiler{cpu}, gpu, []compiler{nvrtc})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cudaToolkit returns the folder of the CUDA toolkit, or "".
func cudaToolkit() string {
	if raceEnabled { // the race detector doesn't cover compilers
		return ""
	}
	if path, err := exec.LookPath("nvcc"); err == nil {
		return filepath.Dir(filepath.Dir(path))
	}
	for _, folder := range []string{os.Getenv("CUDA_HOME"), "/usr/local/cuda", "/opt/cuda"} {
		if folder != "" && exists(filepath.Join(folder, "bin/nvcc")) {
			return folder
		}
	}
	return ""
}

func buildNVRTC(t testing.TB, toolkit string) string {
	t.Helper()
	source, program := kernels+"/test/nvrtc/nvrtc.cpp", filepath.Join(t.TempDir(), "nvrtc")
	contents, err := testbuild.Output([]string{source}, func(output string) *exec.Cmd {
		return exec.Command("c++", "-std=c++17", "-I"+filepath.Join(toolkit, "include"), "-o", output, source, "-ldl")
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, contents, 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return program
}

// TestEveryCompilerGivesTheSameDescription compiles operators for the CPU and for a GPU.
func TestEveryCompilerGivesTheSameDescription(t *testing.T) {
	all := compilers(t)
	for _, source := range []string{entropy, kinds, careless, spread, inBlocks, tally, stray, keywords} {
		var first []byte
		for _, c := range all {
			t.Run(filepath.Base(source)+"/"+c.name, func(t *testing.T) {
				if c.missing != "" {
					t.Skip("SKIPPED: " + c.missing)
				}
				file, err := c.compile(source)
				if err != nil {
					t.Fatal(err)
				}
				output := filepath.Join(t.TempDir(), "operator")
				if err := os.WriteFile(output, file, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := ReadFile(output); err != nil {
					t.Fatal(err)
				}
				data, err := find(file)
				if err != nil {
					t.Fatal(err)
				}
				var h head
				read(data, &h)
				data = data[:h.Bytes]
				if first == nil {
					first = data
				}
				if !bytes.Equal(data, first) {
					t.Errorf("its description differs from that of %s", all[0].name)
				}
			})
		}
	}
}

func TestEntropyDescribesItself(t *testing.T) {
	got, err := Read(library(t, entropy))
	if err != nil {
		t.Fatal(err)
	}
	want := &Description{
		Name: "entropy", Version: 1, Form: Thread, Threads: 64, Teams: 64, Checked: true,
		Parameters: []Parameter{{Name: "bits", Type: Uint32, Default: 4, Min: 1, Max: 6}},
		Fields:     []Field{{Name: "peak", Type: Uint32, Count: 1, CountParameter: -1}},
		Reasons:    []string{"the record is empty"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestEveryKindOfParameterAndFieldIsDescribed(t *testing.T) {
	d, err := Read(library(t, kinds))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range d.Parameters {
		lines = append(lines, p.Name+" "+p.Type.String()+" "+p.format(p.Default)+" from "+p.format(p.Min)+" to "+p.format(p.Max))
	}
	want := []string{
		"a uint8 200 from 0 to 255", "b int16 -300 from -32768 to 32767", "n uint32 3 from 1 to 9", "scale float64 0.375 from -1e+300 to 1e+300",
		"c int64 -1 from -9223372036854775807 to 9223372036854775807", "f float32 -2.5 from -10 to 10",
		"d uint64 18446744073709551615 from 1 to 18446744073709551615", "loud bool true from false to true",
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("parameters\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	fields := []Field{
		{Name: "small", Type: Uint8, Count: 1, CountParameter: -1},
		{Name: "scaled", Type: Float64, Count: 1, CountParameter: -1},
		{Name: "negative", Type: Int8, Count: 1, CountParameter: -1},
		{Name: "pairs", Type: Uint16, Array: true, Count: 3, CountParameter: -1},
		{Name: "upper", Type: Bytes, Count: 1, CountParameter: -1, MaxBytes: 2, MaxPerByte: 1},
		{Name: "sums", Type: Int32, Array: true, CountParameter: 2},
		{Name: "total", Type: Uint64, Count: 1, CountParameter: -1, Hex: true},
		{Name: "digits", Type: Bytes, Count: 1, CountParameter: -1, Hex: true, MaxBytes: 10},
		{Name: "half", Type: Float32, Count: 1, CountParameter: -1},
		{Name: "head", Type: Uint8, Array: true, Count: 5, CountParameter: -1},
	}
	if !reflect.DeepEqual(d.Fields, fields) {
		t.Errorf("fields %+v\nwant %+v", d.Fields, fields)
	}
	if !d.Parameters[1].Shown || d.Parameters[0].Shown || d.Version != 7 || len(d.Reasons) != 2 {
		t.Errorf("%+v", d)
	}
}

func library(t testing.TB, source string) []byte {
	t.Helper()
	c := compilers(t)[0]
	if c.missing != "" {
		t.Skip("SKIPPED: " + c.missing)
	}
	file, err := c.compile(source)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOtherFilesAreRefused(t *testing.T) {
	if _, err := ReadFile("file_test.go"); err == nil || !strings.Contains(err.Error(), "file_test.go: not a compiled operator") {
		t.Errorf("a source file: %v", err)
	}
	if _, err := ReadFile("nothing.so"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadFile("."); err == nil {
		t.Error("a folder is an operator")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(program); err == nil || !strings.Contains(err.Error(), "not a compiled operator") {
		t.Errorf("a program: %v", err)
	}
}
