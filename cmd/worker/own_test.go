package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/testbuild"
)

// ownFolder returns a folder with an operator that is compiled for the CPU.
func ownFolder(t *testing.T, name string, text []byte) string {
	t.Helper()
	programs(t)
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler")
	}
	folder := t.TempDir()
	source := filepath.Join(folder, name+compiled.SourceSuffix)
	if err := os.WriteFile(source, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testbuild.Compile(t.Context(), cpulib.Compile, source, filepath.Join(folder, name+compiled.CPUSuffix)); err != nil {
		t.Fatal(err)
	}
	return folder
}

func entropyFolder(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/operators/entropy/entropy.cu")
	if err != nil {
		t.Fatal(err)
	}
	return ownFolder(t, "entropy", text)
}

// ends is an operator that accepts every record, because the demo counts refused records as wrong.
const ends = `#include <millrace/operator.cuh>
MILLRACE_OPERATOR(ends, 3)
MILLRACE_PARAM(uint32_t, n, 4, 1, 16)
MILLRACE_RESULT(uint64_t, size)
MILLRACE_RESULT(float, half)
MILLRACE_RESULT_ARRAY_BY(uint8_t, head, n, millrace::hex)
MILLRACE_RESULT_BYTES(tail, 16, 0)
MILLRACE_RESULT_BYTES(copy, 0, 1)
MILLRACE_RECORD(record, params, result) {
    result.size = record.size();
    result.half = static_cast<float>(record.size()) / 2;
    for (uint32_t i = 0; i < min(params.n, record.size()); i++) result.head[i] = record[i];
    for (uint32_t i = record.size() - min(16u, record.size()); i < record.size(); i++) result.tail.push(record[i]);
    for (uint32_t i = 0; i < record.size(); i++) result.copy.push(record[i]);
}
`

// TestDemoWithAnOperatorOfOnesOwn runs a whole worker in every format, with and without frames, and checks every
// result.
func TestDemoWithAnOperatorOfOnesOwn(t *testing.T) {
	folder := ownFolder(t, "ends", []byte(ends))
	for _, format := range []string{"json", "binary", "arrow"} {
		for _, framing := range []string{"none", "newline_delimited"} {
			t.Run(format+"/"+framing, func(t *testing.T) {
				r := call(t, []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_OPERATOR_PATH=" + folder, "MILLRACE_OPERATORS=ends?n=5,crc32c",
					"MILLRACE_RESULT_FORMAT=" + format}, "demo", "--payloads", "60", "--framing", framing, "--frame-records", "50")
				r.want(t, exitDone)
				if !strings.Contains(r.out, "\nverified 60 of 60 results") {
					t.Errorf("the demo ends with\n%s", r.out)
				}
			})
		}
	}
}

func TestOperatorsOfOnesOwnAreRefusedWithWhatToDo(t *testing.T) {
	folder := entropyFolder(t)
	path := "MILLRACE_OPERATOR_PATH=" + folder
	call(t, []string{path, "MILLRACE_OPERATORS=entropy?bits=7"}, "run").
		want(t, exitUsage, `parameter "bits" is "7": give a whole number from 1 to 6`)
	call(t, []string{"MILLRACE_OPERATORS=entropy"}, "run").want(t, exitUsage, `unknown operator "entropy": known are crc32c, minhash, quality`)
	if err := os.Remove(filepath.Join(folder, "entropy"+compiled.CPUSuffix)); err != nil {
		t.Fatal(err)
	}
	call(t, []string{path, "MILLRACE_OPERATORS=entropy"}, "run").want(t, exitUsage, "run `worker operator build "+filepath.Join(folder, "entropy.cu"))
	if err := os.WriteFile(filepath.Join(folder, "crc32c.cu"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, []string{path, "MILLRACE_OPERATORS=crc32c"}, "run").want(t, exitUsage, `crc32c.cu: "crc32c" is the name of a built-in operator: choose another`)
	call(t, []string{"MILLRACE_OPERATOR_PATH=/nothing"}, "run").want(t, exitUsage, "MILLRACE_OPERATOR_PATH", "/nothing", "no such file")
}

// TestABrokenFileStopsOnlyWorkersThatUseIt checks that other workers can share the folder.
func TestABrokenFileStopsOnlyWorkersThatUseIt(t *testing.T) {
	folder := ownFolder(t, "ends", []byte(ends))
	if err := os.WriteFile(filepath.Join(folder, "broken.cpu.so"), []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_OPERATOR_PATH=" + folder}
	r := call(t, append(env, "MILLRACE_OPERATORS=ends"), "demo", "--payloads", "20")
	r.want(t, exitDone)
	if want := "MILLRACE_OPERATOR_PATH has an operator that can't be used: "; !strings.Contains(r.errors, want) || !strings.Contains(r.errors, "broken.cpu.so: not a compiled operator") {
		t.Errorf("no warning about the broken file:\n%s", r.errors)
	}
	call(t, append(env, "MILLRACE_OPERATORS=broken,ends"), "demo", "--payloads", "20").want(t, exitUsage, "broken.cpu.so: not a compiled operator")
	call(t, env, "operator", "list").want(t, exitFailed, "broken.cpu.so: not a compiled operator")
}

// three describes three payloads for an operator that fails on the second one.
type three struct {
	operator, source string
	payloads         []string
	results          []string // bodies of the first and third result
	text             string   // text in the dead letter
}

// TestOneOfThreePayloadsIsADeadLetter publishes three payloads. On the second one, the operator refuses the record or
// accesses memory out of bounds. It runs on the CPU and on the fake GPU, which loads a CPU library as a cubin.
func TestOneOfThreePayloadsIsADeadLetter(t *testing.T) {
	for _, c := range []three{
		{"entropy?bits=5", "examples/operators/entropy/entropy.cu", []string{"aab", "", "xyzzy"},
			[]string{`{"bytes":3,"entropy":{"peak":3}}`, `{"bytes":5,"entropy":{"peak":5}}`}, "operator entropy: the record is empty"},
		{"stray?table=t", "kernels/test/operators/stray.cu", []string{"aab", "0", "xyzzy"},
			[]string{`{"bytes":3,"stray":{"size":3}}`, `{"bytes":5,"stray":{"size":5}}`}, "operator stray: a pass of the operator accessed something outside its bounds"},
	} {
		name, _, _ := strings.Cut(c.operator, "?")
		text, err := os.ReadFile(filepath.Join("..", "..", c.source))
		if err != nil {
			t.Fatal(err)
		}
		onCPU, onGPU := ownFolder(t, name, text), t.TempDir()
		for _, file := range []struct {
			path string
			data []byte
		}{{filepath.Join(onGPU, name+".cubin"), fakecuda.Image(t, c.source)}, {filepath.Join(onCPU, "t"), []byte("table")}, {filepath.Join(onGPU, "t"), []byte("table")}} {
			if err := os.WriteFile(file.path, file.data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(name+" host", func(t *testing.T) { c.secondIsADeadLetter(t, "MILLRACE_DEVICE=host", "MILLRACE_OPERATOR_PATH="+onCPU) })
		t.Run(name+" cuda", func(t *testing.T) { c.secondIsADeadLetter(t, append(gpu(t, ""), "MILLRACE_OPERATOR_PATH="+onGPU)...) })
	}
}

// secondIsADeadLetter runs a worker on the three payloads.
func (c three) secondIsADeadLetter(t *testing.T, env ...string) {
	s := serve(t)
	p := start(t, append(env, "MILLRACE_NATS_URL="+s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS="+c.operator, "MILLRACE_LINGER=100ms"), "run")
	p.await("working")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	js := client(t, s)
	for _, body := range c.payloads {
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "ingest.web", Data: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	results, err := js.OrderedConsumer(ctx, "RESULTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"results.>"}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{} // results may arrive in any order
	for range 2 {
		m, err := results.Next()
		if err != nil {
			t.Fatal(err)
		}
		got[string(m.Data())] = true
		if spec := m.Headers().Get("Millrace-Operators"); !strings.HasPrefix(spec, c.operator) { // a table's hash follows its name
			t.Errorf("a result of %s, want %s", spec, c.operator)
		}
	}
	for _, want := range c.results {
		if !got[want] {
			t.Errorf("results %v, want %s", got, want)
		}
	}
	letters, err := js.OrderedConsumer(ctx, "RESULTS_DEADLETTER", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"deadletter.>"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := letters.Next()
	if err != nil {
		t.Fatal(err)
	}
	if m.Headers().Get("Millrace-Reason") != "operator_error" || m.Headers().Get("Millrace-Error") != c.text {
		t.Errorf("the dead letter has the headers %v", m.Headers())
	}
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

// TestOperatorOnAGPUWithoutAReference checks that the demo reports the missing reference, and that `worker check` loads the operator.
func TestOperatorOnAGPUWithoutAReference(t *testing.T) {
	programs(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "entropy.cubin"), fakecuda.Image(t, "examples/operators/entropy/entropy.cu"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(gpu(t, ""), "MILLRACE_OPERATOR_PATH="+folder, "MILLRACE_OPERATORS=entropy")
	call(t, env, "demo").want(t, exitUsage, `operator "entropy" has no library for the CPU`, "worker operator build")
	call(t, env, "check").want(t, exitDone, "fake GPU 0", "4 lanes")
	call(t, append(env, "MILLRACE_DEVICE=host"), "run").want(t, exitUsage, `operator "entropy" has no library for the CPU`)
}

// TestSourceThatDoesNotCompileIsShownAsTheCompilerWroteIt uses NVRTC, which needs no GPU.
func TestSourceThatDoesNotCompileIsShownAsTheCompilerWroteIt(t *testing.T) {
	nvrtc := "/opt/cuda/lib64/libnvrtc.so"
	if home := os.Getenv("CUDA_HOME"); home != "" {
		nvrtc = filepath.Join(home, "lib64", "libnvrtc.so")
	}
	if _, err := os.Stat(nvrtc); err != nil {
		t.Skipf("NOT TESTED: THERE IS NO NVRTC HERE (CUDA_HOME): %v", err)
	}
	folder := t.TempDir()
	text := "#include <millrace/operator.cuh>\n\nMILLRACE_OPERATOR(wrong, 1)\nMILLRACE_RESULT(uint32_t, size)\n\n" +
		"MILLRACE_RECORD(record, params, result) {\n    result.size = record.bytes();\n}\n"
	if err := os.WriteFile(filepath.Join(folder, "wrong.cu"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(gpu(t, "compute=80"), "MILLRACE_OPERATOR_PATH="+folder, "MILLRACE_OPERATORS=wrong", "MILLRACE_NVRTC="+nvrtc)
	call(t, env, "run").want(t, exitUsage, `wrong.cu(7): error: class "millrace::Record" has no member "bytes"`, "      result.size = record.bytes();", "^")
	call(t, append(env, "MILLRACE_NVRTC=/nowhere/libnvrtc.so"), "run").want(t, exitUsage, "wrong.cu must be compiled", "/nowhere/libnvrtc.so")
}

// TestLibraryWithHostCode runs an operator library with host code on the fake GPU. The operator can't run on a CPU.
func TestLibraryWithHostCode(t *testing.T) {
	programs(t)
	library, err := os.ReadFile(fakecuda.OperatorLibrary(t, "internal/device/cuda/testdata/halves.cpp"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "halves.so"), library, 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(gpu(t, "compute=90"), "MILLRACE_OPERATOR_PATH="+folder, "MILLRACE_OPERATORS=crc32c,halves")
	call(t, env, "check").want(t, exitDone, "fake GPU 0", "4 lanes")
	call(t, append(env, "MILLRACE_DEVICE=host"), "run").want(t, exitUsage, `operator "halves" runs only on GPUs`, filepath.Join(folder, "halves.so"))
	path := filepath.Join(folder, "halves.so")
	call(t, env, "operator", "list").want(t, exitDone, "halves, version 3, "+path+", host code, runs on: GPU\n")
	call(t, env, "operator", "test", path, "--with", "most=20", "--brief").want(t, exitDone,
		"CPU: not tested: "+path+" has host code that launches kernels, so only GPUs run it", "every check passed on the GPU; not compared with the CPU")
	call(t, env, "operator", "test", path, "--with", "most=104", "--brief").want(t, exitFailed, `wrong on the GPU: batch "`)
	call(t, env, "operator", "test", path, "--device", "host").want(t, exitFailed, "nothing can run "+path)
	for name, want := range map[string]string{"halves.cubin": "remove those, or that", "other.so": "name the file halves.so"} {
		other := filepath.Join(folder, name)
		if err := os.WriteFile(other, library, 0o600); err != nil {
			t.Fatal(err)
		}
		used, _, _ := strings.Cut(name, ".")
		call(t, append(env, "MILLRACE_OPERATORS="+used), "run").want(t, exitUsage, "MILLRACE_OPERATORS", want)
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
	}
	older := t.TempDir()
	code, err := os.ReadFile(fakecuda.OperatorLibrary(t, "internal/device/cuda/testdata/halves.cpp",
		"-DUNLIKE", "-DUNLIKE_DESCRIPTION=", "-DUNLIKE_OPERATOR=", "-DUNLIKE_LIBRARY=library.abi_version=4,library.size=0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(older, "halves.so"), code, 0o600); err != nil {
		t.Fatal(err)
	}
	call(t, append(env, "MILLRACE_OPERATOR_PATH="+older), "run").want(t, exitUsage, `operator "halves"`, filepath.Join(older, "halves.so"), "has ABI version 4", "needs version 5 or later")
	if err := os.Rename(filepath.Join(folder, "halves.so"), filepath.Join(folder, "halves.cpu.so")); err != nil {
		t.Fatal(err)
	}
	call(t, env, "run").want(t, exitUsage, "whose code is host code", "names end with .so")
}
