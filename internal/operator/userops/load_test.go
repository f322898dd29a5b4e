//go:build cgo

package userops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/images"
	"millrace/internal/operator/testbuild"
)

// fakeGPUs simulates a compiler and GPUs of the given compute capabilities. The compiler returns a CPU library, whose
// description equals a cubin's.
type fakeGPUs struct {
	computes []string // empty if there is no GPU
	err      error    // error of the compiler
	compiled []string // compute capabilities of all compilations
}

func (f *fakeGPUs) Computes() ([]string, error) {
	if len(f.computes) == 0 {
		return nil, errors.New("no driver")
	}
	return f.computes, nil
}

func (f *fakeGPUs) Image(s images.Source, compute string) (images.Image, error) {
	f.compiled = append(f.compiled, compute)
	if f.err != nil {
		return images.Image{}, f.err
	}
	folder, err := os.MkdirTemp("", "millrace-test-")
	if err != nil {
		return images.Image{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	source := filepath.Join(folder, s.Name)
	if err := os.WriteFile(source, s.Text, 0o600); err != nil {
		return images.Image{}, err
	}
	output := filepath.Join(folder, "x.so")
	if err := compileInto(source, output); err != nil {
		return images.Image{}, err
	}
	code, err := os.ReadFile(output)
	return images.Image{Code: code}, err
}

// fakeGPU is a device of one compute capability that can load operators.
type fakeGPU struct {
	device.Device
	compute string
	refuse  map[string]error // by kind of image; an image contains its kind's name
	loaded  []string
	closed  int // number of closed modules
}

func (f *fakeGPU) Info() device.Info { return device.Info{Kind: "cuda", Compute: f.compute} }

func (f *fakeGPU) LoadOperator(code []byte) (device.Module, error) {
	if err := f.refuse[string(code[len(code)-1:])]; err != nil {
		return nil, err
	}
	description, err := compiled.Read(code)
	if err != nil {
		return nil, err
	}
	f.loaded = append(f.loaded, description.Name)
	return module{f, description.Name, code}, nil
}

func (f *fakeGPU) LoadLibrary(path string) (device.Module, error) {
	code, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return f.LoadOperator(code)
}

// module is a loaded operator on a fakeGPU.
type module struct {
	gpu  *fakeGPU
	name string
	code []byte
}

func (m module) Name() string { return m.name }
func (m module) Description() []byte {
	at := strings.Index(string(m.code), "MILLROP\x00")
	return m.code[at:]
}
func (m module) Close() error { m.gpu.closed++; return nil }

func compileInto(source, output string) error {
	return testbuild.Compile(context.Background(), cpulib.Compile, source, output)
}

// mark appends the text to the code. A fakeGPU recognizes the code by this text.
func mark(code []byte, with string) []byte { return append(slices.Clone(code), with...) }

func files(t *testing.T, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range all {
		if err := os.WriteFile(filepath.Join(dir, name), contents, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entropyFiles returns the source of entropy and its compiled code for a fakeGPU.
func entropyFiles(t *testing.T) (source, code []byte) {
	t.Helper()
	dir := folder(t, true)
	source, err := os.ReadFile(filepath.Join(dir, "entropy.cu"))
	if err != nil {
		t.Fatal(err)
	}
	if code, err = os.ReadFile(filepath.Join(dir, "entropy.cpu.so")); err != nil {
		t.Fatal(err)
	}
	return source, code
}

func parse(t *testing.T, gpus GPUs, dir string) []operator.Operator {
	t.Helper()
	found, err := Find([]string{dir}, gpus)
	if err != nil {
		t.Fatal(err)
	}
	op, err := operator.Parse("entropy?bits=5", found[0])
	if err != nil {
		t.Fatal(err)
	}
	return []operator.Operator{op}
}

// TestSourceIsCompiledForEachKindOfGPU: parsing compiles the source for the first GPU to read the description. Loading
// compiles it for each kind of GPU.
func TestSourceIsCompiledForEachKindOfGPU(t *testing.T) {
	source, _ := entropyFiles(t)
	dir := files(t, map[string][]byte{"entropy.cu": source})
	gpus := &fakeGPUs{computes: []string{"8.0", "9.0"}}
	ops := parse(t, gpus, dir)
	if ops[0].String() != "entropy?bits=5" || ops[0].Stride() != 4 {
		t.Errorf("%v with records of %d bytes", ops[0], ops[0].Stride())
	}
	for _, compute := range gpus.computes {
		loaded, err := Load(ops, &fakeGPU{compute: compute})
		if err != nil || len(loaded) != 1 || loaded[0].Name != "entropy" || loaded[0].Version != 1 || loaded[0].Path != filepath.Join(dir, "entropy.cu") {
			t.Errorf("%s: %+v, %v", compute, loaded, err)
		}
	}
	if want := []string{"8.0", "8.0", "9.0"}; !slices.Equal(gpus.compiled, want) {
		t.Errorf("compiled for %v, want %v", gpus.compiled, want)
	}
}

// TestCompiledCodeIsPreferred: the worker compiles the source only if the GPU can't run the compiled code.
func TestCompiledCodeIsPreferred(t *testing.T) {
	source, code := entropyFiles(t)
	unavailable := device.Errorf("load", "", device.ErrUnavailable, "for another GPU")
	for name, test := range map[string]struct {
		files    map[string][]byte
		refuse   map[string]error
		want     string // expected file
		compiled int
	}{
		"cubin":                {files: map[string][]byte{"entropy.cubin": code, "entropy.cu": source}, want: "entropy.cubin"},
		"cubin for another":    {files: map[string][]byte{"entropy.cubin": mark(code, "c"), "entropy.cu": source}, refuse: map[string]error{"c": unavailable}, want: "entropy.cu", compiled: 1},
		"PTX behind the cubin": {files: map[string][]byte{"entropy.cubin": mark(code, "c"), "entropy.ptx": mark(code, "p")}, refuse: map[string]error{"c": unavailable}, want: "entropy.ptx"},
	} {
		gpus := &fakeGPUs{computes: []string{"9.0"}}
		ops := parse(t, gpus, files(t, test.files))
		loaded, err := Load(ops, &fakeGPU{compute: "9.0", refuse: test.refuse})
		if err != nil || filepath.Base(loaded[0].Path) != test.want || len(gpus.compiled) != test.compiled || len(loaded[0].Refused) != len(test.refuse) {
			t.Errorf("%s: %+v after compiling for %v, %v", name, loaded, gpus.compiled, err)
		}
	}
}

// TestWhatCantBeLoadedSaysWhy: if a file is invalid, nothing is compiled or loaded in its place.
func TestWhatCantBeLoadedSaysWhy(t *testing.T) {
	source, code := entropyFiles(t)
	unavailable := device.Errorf("load", "", device.ErrUnavailable, "for another GPU")
	damaged := device.Errorf("load", "", device.ErrInvalid, "damaged")
	for name, test := range map[string]struct {
		files  map[string][]byte
		refuse map[string]error
		want   []string
	}{
		"only for the CPU": {files: map[string][]byte{"entropy.cpu.so": code}, want: []string{`operator "entropy" has no code for a GPU in `, "add its source"}},
		"for another GPU":  {files: map[string][]byte{"entropy.cubin": mark(code, "c")}, refuse: map[string]error{"c": unavailable}, want: []string{"entropy.cubin", "for another GPU"}},
		"damaged":          {files: map[string][]byte{"entropy.cubin": mark(code, "c"), "entropy.cu": source}, refuse: map[string]error{"c": damaged}, want: []string{`operator "entropy"`, "entropy.cubin", "damaged"}},
	} {
		ops := parse(t, &fakeGPUs{computes: []string{"9.0"}}, files(t, test.files))
		_, err := Load(ops, &fakeGPU{compute: "9.0", refuse: test.refuse})
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q in it", name, err, want)
			}
		}
	}
	if _, err := Load(parse(t, nil, files(t, map[string][]byte{"entropy.cpu.so": code})), struct{ device.Device }{&fakeGPU{}}); err == nil || !strings.Contains(err.Error(), "can't load it") {
		t.Errorf("a device that loads nothing: error %v", err)
	}
}

// TestWithoutAGPUASourceNeedsALibrary: the error names both solutions.
func TestWithoutAGPUASourceNeedsALibrary(t *testing.T) {
	source, _ := entropyFiles(t)
	dir := files(t, map[string][]byte{"entropy.cu": source})
	wrong := errors.New("entropy.cu(3): error: no such thing")
	for name, test := range map[string]struct {
		gpus GPUs
		want string
	}{
		"no GPU":      {&fakeGPUs{}, "no GPU can run it: no driver"},
		"no GPU (2)":  {&fakeGPUs{}, "run `worker operator build " + filepath.Join(dir, "entropy.cu")},
		"not wanted":  {nil, "has no library for the CPU beside it"},
		"wrong in it": {&fakeGPUs{computes: []string{"9.0"}, err: wrong}, wrong.Error()},
	} {
		found, err := Find([]string{dir}, test.gpus)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Parse("entropy", found[0]); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, test.want)
		}
	}
}

// TestFilesOfDifferentVersionsAreRefused: an operator must have the same results on a GPU and on the CPU.
func TestFilesOfDifferentVersionsAreRefused(t *testing.T) {
	source, code := entropyFiles(t)
	newer := strings.Replace(string(source), "MILLRACE_OPERATOR(entropy, 1)", "MILLRACE_OPERATOR(entropy, 2)", 1)
	built := folderWith(t, "entropy", newer, true)
	other, err := os.ReadFile(filepath.Join(built, "entropy.cpu.so"))
	if err != nil {
		t.Fatal(err)
	}
	dir := files(t, map[string][]byte{"entropy.cubin": code, "entropy.cpu.so": other})
	if found, err := Find([]string{dir}, nil); err != nil || found[0].Err() == nil || !strings.Contains(found[0].Err().Error(), "different versions") {
		t.Errorf("two versions: error %v, of the operator %v", err, found[0].Err())
	}
	dir = files(t, map[string][]byte{"entropy.cubin": code})
	ops := parse(t, nil, dir)
	if err := os.WriteFile(filepath.Join(dir, "entropy.cubin"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	gpu := &fakeGPU{compute: "9.0"}
	if _, err := Load(ops, gpu); err == nil || !strings.Contains(err.Error(), "different versions") {
		t.Errorf("replaced between configuration and loading: error %v", err)
	}
	if len(gpu.loaded) != 1 || gpu.closed != 1 {
		t.Errorf("the GPU has loaded %v, and %d of them were closed, want 1", gpu.loaded, gpu.closed)
	}
}

// TestAFolderAsKubernetesProjectsIt loads files that are links into a hidden folder.
func TestAFolderAsKubernetesProjectsIt(t *testing.T) {
	source, code := entropyFiles(t)
	dir := t.TempDir()
	hidden := filepath.Join(dir, "..2026_11_23")
	if err := os.Mkdir(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, contents := range map[string][]byte{"entropy.cu": source, "entropy.cpu.so": code} {
		if err := os.WriteFile(filepath.Join(hidden, name), contents, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("..2026_11_23", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	found, err := Find([]string{dir}, nil)
	if err != nil || len(found) != 1 || !slices.Equal(found[0].Files(), []string{"entropy.cu", "entropy.cpu.so"}) {
		t.Errorf("%v, %v", found, err)
	}
}
