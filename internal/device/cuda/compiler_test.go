//go:build cgo

package cuda_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator/compiled"
	include "millrace/kernels/include"
)

// NVRTC needs no GPU, so these tests use the real NVRTC. They show that it compiles operators, but they don't run the
// code.

// nvrtcLibrary returns the path of NVRTC in the CUDA toolkit. It returns "" if the system's library path must be
// searched.
func nvrtcLibrary() string {
	for _, home := range []string{os.Getenv("CUDA_HOME"), "/usr/local/cuda", "/opt/cuda"} {
		path := filepath.Join(home, "lib64", "libnvrtc.so")
		if _, err := os.Stat(path); home != "" && err == nil {
			return path
		}
	}
	return ""
}

// openCompiler opens the real NVRTC through the fake library.
func openCompiler(t testing.TB) *cuda.Compiler {
	t.Helper()
	c, err := cuda.OpenCompiler(fakecuda.Library(t), nvrtcLibrary())
	if err == nil {
		return c
	}
	if os.Getenv("MILLRACE_REQUIRE_NVRTC") == "1" {
		t.Fatalf("%v (MILLRACE_REQUIRE_NVRTC=1 MAKES THIS A FAILURE)", err)
	}
	t.Skipf("NOT TESTED: THERE IS NO NVRTC HERE (CUDA_HOME): %v", err)
	return nil
}

// operatorSource returns the source of an operator in the repository; file is relative to the repository's root.
func operatorSource(t testing.TB, file, compute string) cuda.Source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
	if err != nil {
		t.Skipf("NOT TESTED: THE OPERATORS' SOURCES ARE NOT HERE: %v", err)
	}
	return cuda.Source{Name: filepath.Base(file), Text: string(text), Headers: include.Headers, Compute: compute}
}

func TestOperatorsCompile(t *testing.T) {
	c := openCompiler(t)
	if !strings.HasPrefix(c.Version(), "1") || !strings.Contains(c.Version(), ".") {
		t.Errorf("NVRTC has version %q", c.Version())
	}
	for _, file := range []string{entropyCU, kindsCU, spreadCU} {
		for _, compute := range []string{"8.0", "9.0"} {
			t.Run(filepath.Base(file)+" "+compute, func(t *testing.T) {
				image, warnings, err := c.Compile(operatorSource(t, file, compute))
				if err != nil {
					t.Fatal(err)
				}
				if strings.TrimSpace(warnings) != "" {
					t.Errorf("warnings: %s", warnings)
				}
				d, err := compiled.Read(image)
				if err != nil {
					t.Fatal(err)
				}
				if name, _, _ := strings.Cut(filepath.Base(file), "."); d.Name != name {
					t.Errorf("the image has the operator %q", d.Name)
				}
				if got, want := architecture(image), strings.Replace(compute, ".", "", 1); got != want {
					t.Errorf("the image is for sm_%s, want sm_%s", got, want)
				}
			})
		}
	}
}

// architecture returns the architecture in the flags of a cubin's ELF header. It is the lowest byte of the flags, or
// the second byte from ABI version 8 on, which CUDA 13 writes.
func architecture(image []byte) string {
	const abiAt, flagsAt = 8, 48
	if image[abiAt] >= 8 {
		return strconv.Itoa(int(image[flagsAt+1]))
	}
	return strconv.Itoa(int(image[flagsAt]))
}

// An error has the file's name, the line number, the line's text and a caret, in the compiler's own format.
func TestCompilerErrorsArriveAsWritten(t *testing.T) {
	c := openCompiler(t)
	source := operatorSource(t, entropyCU, "9.0")
	source.Text = strings.Replace(source.Text, "result.peak, count", "result.peek, count", 1)
	_, _, err := c.Compile(source)
	var wrong *cuda.CompileError
	if !errors.As(err, &wrong) || wrong.Name != "entropy.cu" {
		t.Fatalf("got %v, want a CompileError", err)
	}
	lines := strings.Split(wrong.Log, "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[0], "entropy.cu(15): error: ") || !strings.Contains(lines[0], `"peek"`) {
		t.Fatalf("the log begins with %q", lines[0])
	}
	if !strings.Contains(lines[1], "result.peek") || strings.Index(lines[1], "peek") != strings.Index(lines[2], "^") {
		t.Errorf("the caret isn't below the mistake:\n%s\n%s", lines[1], lines[2])
	}
	if !strings.Contains(err.Error(), "entropy.cu doesn't compile:\nentropy.cu(15): error: ") {
		t.Errorf("the message: %v", err)
	}
}

func TestMissingHeaderIsACompileError(t *testing.T) {
	source := operatorSource(t, entropyCU, "9.0")
	for name, headers := range map[string]fs.FS{"none": nil, "others": fstest.MapFS{"other.cuh": {}}} {
		source.Headers = headers
		var wrong *cuda.CompileError
		if _, _, err := openCompiler(t).Compile(source); !errors.As(err, &wrong) || !strings.Contains(wrong.Log, "millrace/operator.cuh") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Any header may be included directly, in addition to operator.cuh.
func TestHeadersMayBeIncludedTwice(t *testing.T) {
	source := operatorSource(t, entropyCU, "8.0")
	source.Text = "#include <millrace/team.cuh>\n" + source.Text + "\n#include \"millrace/declare.cuh\"\n"
	if _, _, err := openCompiler(t).Compile(source); err != nil {
		t.Error(err)
	}
}

func TestOptionsReachTheCompiler(t *testing.T) {
	source := operatorSource(t, entropyCU, "9.0")
	source.Options = []string{"-DMILLRACE_SOURCE=1,2,3", "-DMILLRACE_UNCHECKED"}
	image, _, err := openCompiler(t).Compile(source)
	if err != nil {
		t.Fatal(err)
	}
	d, err := compiled.Read(image)
	if err != nil || d.Checked || d.Source != [32]byte{1, 2, 3} {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestBadArgumentsOfCompileAreRefused(t *testing.T) {
	c := openCompiler(t)
	for name, c2 := range map[string]struct {
		change func(s *cuda.Source)
		word   string
	}{
		"no architecture":      {func(s *cuda.Source) { s.Compute = "" }, `compute capability is ""`},
		"no number":            {func(s *cuda.Source) { s.Compute = "sm_90" }, `compute capability is "sm_90"`},
		"unknown architecture": {func(s *cuda.Source) { s.Compute = "99.0" }, "compute capability 99.0"},
		"unknown option":       {func(s *cuda.Source) { s.Options = []string{"--nosuch"} }, "nosuch"},
		"a zero byte":          {func(s *cuda.Source) { s.Text += "\x00" }, "zero byte"},
	} {
		s := operatorSource(t, entropyCU, "9.0")
		c2.change(&s)
		if _, _, err := c.Compile(s); !errors.Is(err, device.ErrInvalid) || !strings.Contains(err.Error(), c2.word) {
			t.Errorf("%s: got %v, want %q in it", name, err, c2.word)
		}
	}
}

func TestMissingCompilerSaysWhatToInstall(t *testing.T) {
	library := fakecuda.Library(t)
	other := buildLibrary(t, "int other;")
	for path, words := range map[string][]string{
		"/nowhere/libnvrtc.so": {"/nowhere/libnvrtc.so", "install", "cuda-nvrtc"}, other: {other, "is not NVRTC"},
	} {
		_, err := cuda.OpenCompiler(library, path)
		if !errors.Is(err, device.ErrUnavailable) {
			t.Errorf("%s: got %v, want an error that wraps %q", path, err, device.ErrUnavailable)
			continue
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the message doesn't say %q: %v", path, word, err)
			}
		}
	}
	if _, err := cuda.OpenCompiler("/nowhere/libmillrace.so", ""); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("without a kernel library: got %v", err)
	}
}

func TestCompilationsMayOverlap(t *testing.T) {
	c := openCompiler(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, _, err := c.Compile(operatorSource(t, entropyCU, "9.0")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// The GPU library contains the same compiler. Without a GPU, only this part of the library can be tested.
func TestRealLibraryCompiles(t *testing.T) {
	library := builtLibrary()
	if library == "" {
		t.Skip("NOT TESTED: THERE IS NO LIBMILLRACE.SO: BUILD IT WITH `make -C kernels` OR NAME IT IN MILLRACE_KERNELS")
	}
	openCompiler(t)
	c, err := cuda.OpenCompiler(library, nvrtcLibrary())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Compile(operatorSource(t, entropyCU, "9.0")); err != nil {
		t.Error(err)
	}
}

// envBeside is the variable that passes the library's name to the process that TestCompilerBesideTheLibraryIsFound
// starts.
const envBeside = "MILLRACE_TEST_BESIDE"

// The loader finds a library by its name alone once a process has opened it. So each case needs a separate process.
func TestCompilerBesideTheLibraryIsFound(t *testing.T) {
	if library := os.Getenv(envBeside); library != "" {
		c, err := cuda.OpenCompiler(library, "")
		if err == nil {
			_, _, err = c.Compile(operatorSource(t, entropyCU, "9.0"))
		}
		fmt.Printf("result: %v\n", err)
		return
	}
	openCompiler(t)
	nvrtc := nvrtcLibrary()
	if nvrtc == "" {
		t.Skip("NOT TESTED: NVRTC IS WHERE THE SYSTEM LOOKS FOR LIBRARIES, SO IT IS FOUND EVERYWHERE")
	}
	fake, err := os.ReadFile(fakecuda.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	library := filepath.Join(folder, "libmillrace.so")
	if err := os.WriteFile(library, fake, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func() string {
		command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		command.Env = append(os.Environ(), envBeside+"="+library)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if out := run(); strings.Contains(out, "result: <nil>") {
		t.Skip("NOT TESTED: NVRTC IS WHERE THE SYSTEM LOOKS FOR LIBRARIES, SO IT IS FOUND EVERYWHERE")
	} else if !strings.Contains(out, "NVRTC can't be opened (no libnvrtc.so.13, .12 or .so): install it") {
		t.Errorf("without NVRTC beside the library: %s", out)
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(nvrtc), "libnvrtc*.so.*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v: %v", found, err)
	}
	for _, file := range found {
		if err := os.Symlink(file, filepath.Join(folder, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(); !strings.Contains(out, "result: <nil>") {
		t.Errorf("with NVRTC beside the library: %s", out)
	}
}
