//go:build cgo

package cuda_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/devkit"
	"millrace/internal/operator/testbuild"
	include "millrace/kernels/include"
)

// pair runs an operator on a GPU and on the CPU.
type pair struct{ gpu, cpu *devkit.Runner }

// conforms runs the suite on the GPU, compares each byte with the CPU's result, and returns the findings.
func (p pair) conforms(t *testing.T) []devkit.Finding {
	t.Helper()
	return p.conformsOn(t, devkit.Batches(1))
}

// conformsBriefly does the same as conforms, but omits records of a megabyte. On the fake GPU such records take long
// and test no other code of the runtime, so only one operator runs with them.
func (p pair) conformsBriefly(t *testing.T) []devkit.Finding {
	t.Helper()
	return p.conformsOn(t, slices.DeleteFunc(devkit.Batches(1), func(set corpus.Set) bool {
		return slices.ContainsFunc(set.Payloads, func(p []byte) bool { return len(p) >= 1<<20 })
	}))
}

func (p pair) conformsOn(t *testing.T, batches []corpus.Set) []devkit.Finding {
	t.Helper()
	report, err := p.gpu.Test(t.Context(), batches, p.cpu)
	if err != nil {
		t.Fatal(err)
	}
	if report.Records == 0 || len(report.Untested) > 0 {
		t.Errorf("%d records; untested: %v", report.Records, report.Untested)
	}
	return report.Findings
}

// newRunner opens a Runner for an operator with its default parameters. The Runner is closed before its device.
func newRunner(t *testing.T, d device.Device, description *compiled.Description) *devkit.Runner {
	t.Helper()
	o, err := devkit.BindAny(description, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := devkit.Open(devkit.Subject{Device: d, Operator: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && d.Err() == nil {
			t.Error(err)
		}
	})
	return r
}

// closing closes a device at the end of the test. A lost device returns its loss, which the suite has already reported.
func closing[D device.Device](t *testing.T, d D, err error) D {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lost := d.Err() != nil
		if err := d.Close(); err != nil && !lost {
			t.Error(err)
		}
	})
	return d
}

func builtInPair(t *testing.T, gpu device.Device, description *compiled.Description) pair {
	t.Helper()
	d, err := host.Open(host.Options{Kernels: operator.HostKernels()})
	cpu := closing(t, d, err)
	return pair{newRunner(t, gpu, description), newRunner(t, cpu, description)}
}

// ownPair loads an operator's image into a GPU, and compiles its source for the CPU.
func ownPair(t *testing.T, gpu device.Device, image []byte, source string) pair {
	t.Helper()
	output := filepath.Join(t.TempDir(), "operator"+compiled.CPUSuffix)
	if err := testbuild.Compile(t.Context(), cpulib.Compile, filepath.Join("..", "..", "..", source), output); err != nil {
		if errors.Is(err, cpulib.ErrNoCompiler) {
			t.Skipf("NOT TESTED: COMPARING OPERATORS WITH A CPU NEEDS A C++ COMPILER: %v", err)
		}
		t.Fatal(err)
	}
	l, err := cpulib.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	d, err := host.Open(host.Options{Kernels: []device.HostKernel{l}})
	cpu := closing(t, d, err)
	m := mustLoad(t, gpu, image)
	loaded, err := compiled.Decode(m.Description())
	if err != nil {
		t.Fatal(err)
	}
	return pair{newRunner(t, gpu, loaded), newRunner(t, cpu, l.Description())}
}

// operatorSources returns the paths of sources in the repository, relative to its root.
func operatorSources(t *testing.T, patterns ...string) (sources []string) {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("NO SOURCES MATCH %s: %v", pattern, err)
		}
		for _, path := range found {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, relative)
		}
	}
	return sources
}

// onPurpose maps files of the repository's operators to their deliberate mistakes.
var onPurpose = map[string][]devkit.Kind{
	"careless.cu": {devkit.OutOfBounds},
	"stray.cu":    {devkit.OutOfBounds},
}

// fails reports findings as failures, except for the mistakes in onPurpose.
func fails(t *testing.T, source string, findings []devkit.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.Contains(onPurpose[filepath.Base(source)], f.Kind) {
			t.Error(f)
		}
	}
}

// gpuCompiler opens NVRTC for a real GPU. Tests that need a GPU also need NVRTC.
func gpuCompiler(t *testing.T, library string) *cuda.Compiler {
	t.Helper()
	c, err := cuda.OpenCompiler(library, nvrtcLibrary())
	switch {
	case err == nil:
	case os.Getenv("MILLRACE_REQUIRE_GPU") == "1":
		t.Fatalf("USER-WRITTEN OPERATORS ARE NOT TESTED: %v (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)", err)
	default:
		t.Skipf("USER-WRITTEN OPERATORS ARE NOT TESTED: %v (SET MILLRACE_REQUIRE_GPU=1 TO FAIL INSTEAD)", err)
	}
	return c
}

// onEachGPU runs a test on each GPU, with a device that no other test uses.
func onEachGPU(t *testing.T, test func(t *testing.T, library string, info device.Info)) {
	library, all := gpus(t)
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) { test(t, library, info) })
	}
}

// sourceWithNeighbors does the same as operatorSource, for a file that may include other files of its folder.
func sourceWithNeighbors(t *testing.T, file, compute string) cuda.Source {
	t.Helper()
	source := operatorSource(t, file, compute)
	headers := fstest.MapFS{}
	for _, folder := range []fs.FS{include.Headers, os.DirFS(filepath.Join("..", "..", "..", filepath.Dir(file)))} {
		if err := fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := fs.ReadFile(folder, path)
			if suffix := filepath.Ext(path); suffix == ".cu" || suffix == ".cuh" || suffix == ".h" {
				headers[path] = &fstest.MapFile{Data: text}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	source.Headers = headers
	return source
}

// repositoryOperators are the sources of operators that conform. wrongOperators are sources of operators that must not
// conform.
var (
	repositoryOperators = []string{"kernels/bench/operators/*.cu", "examples/operators/*/*.cu", "kernels/test/operators/*.cu"}
	wrongOperators      = "kernels/test/operators/wrong/*.cu"
)

// The real NVRTC compiles every operator that the GPU tests run. It needs no GPU. Sources that compiled without a
// warning are cached.
func TestOperatorsOfTheRepositoryCompile(t *testing.T) {
	c := openCompiler(t)
	for _, source := range operatorSources(t, append(repositoryOperators, wrongOperators)...) {
		code := sourceWithNeighbors(t, source, "9.0")
		hash, err := testbuild.Hash([]string{filepath.Join("..", "..", "..", source)}, append(code.Options, nvrtcLibrary(), c.Version(), code.Compute))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := testbuild.Kept(hash, func(output string) error {
			image, warnings, err := c.Compile(code)
			if text := strings.TrimSpace(warnings); err == nil && text != "" {
				err = errors.New(text)
			}
			return errors.Join(err, os.WriteFile(output, image, 0o600))
		}); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestOperatorsConformOnGPUs runs the suite on each GPU, for the built-in operators and for every operator of the repository.
func TestOperatorsConformOnGPUs(t *testing.T) {
	onEachGPU(t, func(t *testing.T, library string, info device.Info) {
		for _, d := range compiled.BuiltIn() {
			t.Run(d.Name, func(t *testing.T) {
				gpu, err := cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal})
				fails(t, d.Name, builtInPair(t, closing(t, gpu, err), d).conforms(t))
			})
		}
		c := gpuCompiler(t, library)
		for _, source := range operatorSources(t, repositoryOperators...) {
			t.Run(filepath.Base(source), func(t *testing.T) {
				image, warnings, err := c.Compile(sourceWithNeighbors(t, source, info.Compute))
				if err != nil {
					t.Fatal(err)
				}
				if text := strings.TrimSpace(warnings); text != "" {
					t.Errorf("warnings: %s", text)
				}
				gpu, err := cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal})
				fails(t, source, ownPair(t, closing(t, gpu, err), image, source).conforms(t))
			})
		}
	})
}

// hostCode loads an operator with host code into a GPU. Its results can't be compared with a CPU.
func hostCode(t *testing.T, gpu device.Device, path string) pair {
	t.Helper()
	loaded, err := compiled.Decode(mustLoadLibrary(t, gpu, path).Description())
	if err != nil {
		t.Fatal(err)
	}
	return pair{gpu: newRunner(t, gpu, loaded)}
}

// TestHostCodeConforms runs the suite on libraries with host code. Several libraries run on the fake GPU, and nvcc's
// library runs on each real GPU.
func TestHostCodeConforms(t *testing.T) {
	for _, flags := range [][]string{nil, {"-DNO_REASONS"}, {"-DSTRINGS"}} {
		t.Run("fake GPU"+strings.Join(flags, ""), func(t *testing.T) {
			fails(t, "halves", hostCode(t, openFake(t, ""), fakecuda.OperatorLibrary(t, halvesCPP, flags...)).conformsBriefly(t))
		})
	}
	t.Run("GPUs", func(t *testing.T) {
		onEachGPU(t, func(t *testing.T, library string, info device.Info) {
			gpu, err := cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal})
			fails(t, "above_mean", hostCode(t, closing(t, gpu, err), aboveMean(t)).conforms(t))
		})
	})
}

// mistakes maps operators that the suite must reject to kinds of findings. A GPU reports one of these kinds.
var mistakes = map[string][]devkit.Kind{
	"beyond":    {devkit.OutOfBounds},
	"pass":      {devkit.OutOfBounds},
	"leftover":  {devkit.Uninitialized},
	"neighbor":  {devkit.ReadOutside, devkit.Neighbors},
	"overwrite": {devkit.WroteOutside},
	"scribble":  {devkit.WroteOutside},
	"counting":  {devkit.Unrepeatable},
	"aligned":   {devkit.Placement},
	"lanes":     {devkit.Devices},
}

// TestOperatorsConformFindsMistakesOnGPUs checks that the suite finds each kind of mistake on a real GPU.
func TestOperatorsConformFindsMistakesOnGPUs(t *testing.T) {
	onEachGPU(t, func(t *testing.T, library string, info device.Info) {
		c := gpuCompiler(t, library)
		for name, kinds := range mistakes {
			t.Run(name, func(t *testing.T) {
				source := "kernels/test/operators/wrong/" + name + ".cu"
				image, _, err := c.Compile(sourceWithNeighbors(t, source, info.Compute))
				if err != nil {
					t.Fatal(err)
				}
				gpu, err := cuda.Open(cuda.Options{Library: library, Ordinal: info.Ordinal})
				found := map[devkit.Kind]bool{}
				for _, f := range ownPair(t, closing(t, gpu, err), image, source).conforms(t) {
					t.Log(f)
					found[f.Kind] = true
				}
				for _, kind := range kinds {
					if !found[kind] {
						t.Errorf("no finding of kind %d", kind)
					}
				}
			})
		}
	})
}

// TestOperatorsConformOnTheFakeGPU shows that the suite uses the real runtime. The fake GPU runs the operators' code
// for the CPU.
func TestOperatorsConformOnTheFakeGPU(t *testing.T) {
	t.Run("crc32c", func(t *testing.T) {
		fails(t, "crc32c", builtInPair(t, openFake(t, ""), compiled.BuiltIn()[0]).conforms(t))
	})
	for _, source := range []string{entropyCU, kindsCU, "kernels/test/operators/careless.cu", "kernels/test/operators/tally.cu"} {
		t.Run(filepath.Base(source), func(t *testing.T) {
			image := fakecuda.Image(t, source)
			fails(t, source, ownPair(t, openFake(t, ""), image, source).conformsBriefly(t))
		})
	}
	t.Run("neighbor.cu", func(t *testing.T) {
		const source = "kernels/test/operators/wrong/neighbor.cu"
		image := fakecuda.Image(t, source)
		if found := ownPair(t, openFake(t, ""), image, source).conformsBriefly(t); len(found) == 0 {
			t.Error("the suite accepts a wrong operator")
		}
	})
}
