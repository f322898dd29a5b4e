package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
)

func TestOperatorFromAnEmptyFolder(t *testing.T) {
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler")
	}
	folder := t.TempDir()
	source := filepath.Join(folder, "runs.cu")
	call(t, nil, "operator", "new", "runs", "--in", folder).want(t, exitDone, "wrote "+source, "next: worker operator test "+source)
	call(t, nil, "operator", "new", "--in", folder, "runs").want(t, exitFailed, "file exists")
	call(t, nil, "operator", "test", source).want(t, exitDone, `{"longest":3}`, "rejected: the record is empty", "runs?value=32: version 1, thread per record",
		"CPU: host (", "GPU: not tested: ", "throughput of the kernel, records of  256 B", " GB/s", "every check passed on the CPU; not compared with a GPU")
	call(t, nil, "operator", "build", source).want(t, exitDone, "runs.cpu.so: operator runs, version 1, for the CPU")
	library := filepath.Join(folder, "runs.cpu.so")
	call(t, nil, "operator", "test", library, "--brief", "--with", "value=120").want(t, exitFailed, "want {\"longest\":3}", "1 checks failed")
	r := call(t, nil, "operator", "list", library)
	r.want(t, exitDone, "crc32c, version 1, built in", "minhash, version 2, built in, host code, runs on: GPU, CPU ("+operator.HostVariant("minhash")+")", "signature uint32[hashes]", "runs, version 1, "+folder, "runs on: CPU",
		"parameter value=32 (uint32, 0 to 255)", "result    longest uint32", "rejects   the record is empty")
	if r.errors != "" {
		t.Errorf("errors: %s", r.errors)
	}
}

func TestBadUsageOfOperator(t *testing.T) {
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"", "name one of its commands", exitUsage},
		{"compile x.cu", `there is no command "compile"`, exitUsage},
		{"test", "give one file, not 0", exitUsage},
		{"build a.cu b.cu", "give one file, not 2", exitUsage},
		{"test operator.go", "no such file", exitFailed},
		{"new x --out y", "unknown flag", exitUsage},
		{"new Upper", `"Upper" can't be the name of an operator`, exitFailed},
		{"new status", `"status" is a name that results and filters use themselves: choose another`, exitFailed},
		{"test nothing.cu", "no such file", exitFailed},
		{"list nothing.so", "no such file", exitFailed},
		{"test x.cu --on nothing", "no such file", exitFailed},
		{"test x.cu --device gpu", "--device gpu: give auto, cuda or host", exitUsage},
		{"test x.cu --device host --sanitize", "no host with --sanitize", exitUsage},
		{"build x.txt", "ends with .cu", exitFailed},
		{"-h", "write a commented operator", exitDone},
		{"build -h", "NAME.cpu.so", exitDone},
	} {
		call(t, nil, append([]string{"operator"}, strings.Fields(c.args)...)...).want(t, c.code, c.want)
	}
}

// TestNamesOfBuiltInOperatorsAreRefused checks that the commands refuse an operator with a built-in name, as the worker does.
func TestNamesOfBuiltInOperatorsAreRefused(t *testing.T) {
	const refusal = `"minhash" is the name of a built-in operator: choose another`
	folder := entropyFolder(t)
	call(t, nil, "operator", "new", "minhash", "--in", folder).want(t, exitFailed, refusal)
	source, library := filepath.Join(folder, "minhash.cu"), filepath.Join(folder, "minhash.cpu.so")
	for from, to := range map[string]string{"entropy.cu": source, "entropy.cpu.so": library} {
		text, err := os.ReadFile(filepath.Join(folder, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, bytes.ReplaceAll(text, []byte("entropy"), []byte("minhash")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call(t, nil, "operator", "test", source).want(t, exitFailed, source+": "+refusal)
	call(t, nil, "operator", "build", source).want(t, exitFailed, source+": "+refusal)
	call(t, nil, "operator", "build", source, "--arch", "90").want(t, exitFailed, source+": "+refusal)
	call(t, nil, "operator", "test", library, "--brief").want(t, exitFailed, library+": "+refusal)
	call(t, nil, "operator", "list", library).want(t, exitFailed, library+": "+refusal)
	other := filepath.Join(folder, "mine.cu")
	if err := os.Rename(source, other); err != nil {
		t.Fatal(err)
	}
	call(t, nil, "operator", "build", other).want(t, exitFailed, other+": MILLRACE_OPERATOR: "+refusal)
}

// gpuFolder compiles an operator for the CPU and the fake GPU. It returns the files' path without extension.
func gpuFolder(t *testing.T, source string) (stem string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", source))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(filepath.Base(source), ".")
	folder := ownFolder(t, name, text)
	stem = filepath.Join(folder, name)
	if err := os.WriteFile(stem+compiled.CubinSuffix, fakecuda.Image(t, source), 0o600); err != nil {
		t.Fatal(err)
	}
	return stem
}

// TestOperatorOnAGPUIsComparedWithTheCPU checks that the command runs the operator on both devices and compares the results. The fake GPU
// runs code for the CPU.
func TestOperatorOnAGPUIsComparedWithTheCPU(t *testing.T) {
	stem := gpuFolder(t, "examples/operators/entropy/entropy.cu")
	env := gpu(t, "")
	call(t, env, "operator", "test", stem+compiled.CPUSuffix, "--with", "bits=5", "--brief").want(t, exitDone, "entropy?bits=5: version 1", "CPU: host (",
		"the library "+stem, "GPU: fake GPU 0 ", "every check passed, and the GPU gives the same bytes as the CPU")
	call(t, env, "operator", "test", stem+compiled.CubinSuffix, "--device", "cuda", "--brief").want(t, exitDone,
		"CPU: not tested: only results of the GPU were asked for", "every check passed, and the GPU gives the same bytes as the CPU")
	call(t, env, "operator", "test", stem+compiled.CPUSuffix, "--device", "host", "--brief").want(t, exitDone, "GPU: not tested: --device host was given")
	call(t, env, "operator", "test", stem+compiled.CubinSuffix, "--with", "bits=9").want(t, exitUsage, "give a whole number from 1 to 6")
	if err := os.Remove(stem + compiled.CPUSuffix); err != nil {
		t.Fatal(err)
	}
	call(t, env, "operator", "test", stem+compiled.CubinSuffix, "--brief").want(t, exitDone, "CPU: not tested: there is no entropy.cpu.so beside "+stem,
		"every check passed on the GPU; not compared with the CPU")
	call(t, nil, "operator", "test", stem+compiled.CubinSuffix).want(t, exitFailed, "nothing can run "+stem, "there is no entropy.cpu.so", "MILLRACE_KERNELS")
	call(t, nil, "operator", "test", stem+compiled.SourceSuffix, "--device", "cuda").want(t, exitFailed, "--device cuda: ", "MILLRACE_KERNELS")
}

func TestOperatorsOfTwoSourcesAreNotCompared(t *testing.T) {
	stem := gpuFolder(t, "examples/operators/entropy/entropy.cu")
	cubin := stem + compiled.CubinSuffix
	image, err := os.ReadFile(cubin)
	if err != nil {
		t.Fatal(err)
	}
	for want, code := range map[string][]byte{
		cubin + ` has the operator "kinds": name the file kinds.cubin`:                   fakecuda.Image(t, "kernels/test/operators/kinds.cu"),
		`are different versions of the operator "entropy": compile both from one source`: bytes.ReplaceAll(image, []byte("the record is empty"), []byte("the record is EMPTY")),
	} {
		if err := os.WriteFile(cubin, code, 0o600); err != nil {
			t.Fatal(err)
		}
		call(t, gpu(t, ""), "operator", "test", cubin).want(t, exitFailed, want)
	}
}

func TestMistakesOnAGPUAreReported(t *testing.T) {
	stem := gpuFolder(t, "kernels/test/operators/wrong/leftover.cu")
	call(t, gpu(t, ""), "operator", "test", stem+compiled.CubinSuffix, "--brief").want(t, exitFailed,
		`wrong on the CPU: batch "empties", record 0 (0 bytes, ""): its result depends on what was in memory before`,
		`wrong on the GPU: batch "empties", record 0 (0 bytes, ""): its result depends on what was in memory before`, "(and the like in 8 more batches)")
}

// TestSourceForAGPU compiles with the real NVRTC. The fake GPU refuses the compiled code.
func TestSourceForAGPU(t *testing.T) {
	folder := entropyFolder(t)
	source := filepath.Join(folder, "entropy.cu")
	env := gpu(t, "", "LD_LIBRARY_PATH="+strings.Join([]string{filepath.Join(os.Getenv("CUDA_HOME"), "lib64"), "/usr/local/cuda/lib64", "/opt/cuda/lib64"}, ":"))
	built := call(t, env, "operator", "build", source, "--arch", "sm_90,90", "--cpu")
	if strings.Contains(built.errors, "install it") {
		t.Skip("NOT TESTED: THERE IS NO NVRTC HERE (CUDA_HOME): " + built.errors)
	}
	built.want(t, exitDone, "entropy.cubin: operator entropy, version 1, for GPUs of compute capability 9.0", "entropy.cpu.so: operator entropy")
	call(t, env, "operator", "test", source).want(t, exitFailed, source, "the driver refuses the image")
	none := append(gpu(t, "compute="), env[len(env)-1])
	call(t, none, "operator", "test", source, "--brief").want(t, exitDone, "GPU: not tested: this machine has no GPU; NVRTC 1", " compiles it for GPUs of compute capability 9.0")
	if r := call(t, env, "operator", "build", source, "--arch", "80,90"); r.code == exitDone {
		r.want(t, exitDone, "entropy.fatbin: operator entropy, version 1, for GPUs of compute capability 8.0, 9.0")
	} else {
		r.want(t, exitFailed, "the CUDA toolkit's program fatbinary", "give one architecture")
	}
	typo := filepath.Join("..", "..", "internal", "operator", "cpulib", "testdata", "typo.cu")
	absolute, err := filepath.Abs(typo)
	if err != nil {
		t.Fatal(err)
	}
	call(t, none, "operator", "test", absolute).want(t, exitUsage, "typo.cu")
	call(t, env, "operator", "build", absolute, "--arch", "90").want(t, exitUsage, "typo.cu(8): error: ", "sise")
}

func TestBuildNeedsArchitecturesThatExist(t *testing.T) {
	source := filepath.Join(entropyFolder(t), "entropy.cu")
	for _, arch := range []string{"H100", "9", "80,,90"} {
		call(t, nil, "operator", "build", source, "--arch", arch).want(t, exitUsage, "--arch "+arch+": give numbers with commas between them, such as 80,90")
	}
	call(t, nil, "operator", "build", source, "--arch", "90").want(t, exitFailed, "MILLRACE_KERNELS")
}

// TestCrashOfAnOperatorIsAFinding uses an invalid pointer, which kills the process. The report must still name the record.
func TestCrashOfAnOperatorIsAFinding(t *testing.T) {
	text := strings.Replace(ends, "MILLRACE_OPERATOR(ends,", "MILLRACE_OPERATOR(crash,", 1)
	text = strings.Replace(text, "result.size = record.size();", "result.size = record.size() == 2 ? *reinterpret_cast<const volatile uint8_t *>(8) : record.size();", 1)
	library := filepath.Join(ownFolder(t, "crash", []byte(text)), "crash.cpu.so")
	r := call(t, nil, "operator", "test", library, "--brief")
	r.want(t, exitFailed, `wrong on the CPU: batch "lengths", record 2 (2 bytes, "`, "the code crashed: look for a pointer", "1 checks failed")
	if strings.Contains(r.errors, "goroutine") {
		t.Errorf("the output has a dump of the process:\n%s", r.errors)
	}
}

// TestOperatorThatDoesNotEndIsNoticed checks that an endless loop becomes a finding after a minute. Before that, the command must name the
// batch that it waits for.
func TestOperatorThatDoesNotEndIsNoticed(t *testing.T) {
	t.Parallel()
	text := strings.Replace(ends, "MILLRACE_OPERATOR(ends,", "extern \"C\" int pause();\nMILLRACE_OPERATOR(loops,", 1)
	text = strings.Replace(text, "result.size = record.size();", "for (;;) pause();", 1) // sleeps instead of using a processor
	p := start(t, nil, "operator", "test", filepath.Join(ownFolder(t, "loops", []byte(text)), "loops.cpu.so"), "--brief")
	p.await(`the CPU still computes batch "empties": waiting for up to 1m0s; if that is unexpected, look for a loop that doesn't end`)
	if code := p.terminate(); code == exitDone {
		t.Error("the command was stopped, and its exit status is 0")
	}
}

// sanitizer returns a folder with a fake compute-sanitizer, which runs its argument and exits with a given status.
func sanitizer(t *testing.T, script string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "compute-sanitizer"), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return "PATH=" + folder + string(os.PathListSeparator) + os.Getenv("PATH")
}

func TestSanitizerRunsTheCommandAgain(t *testing.T) {
	stem := gpuFolder(t, "examples/operators/entropy/entropy.cu")
	test := []string{"operator", "test", stem + compiled.CubinSuffix, "--sanitize", "--with", "bits=2"}
	call(t, gpu(t, "", sanitizer(t, `echo "$1 $2 $3 $4"; shift 4; exec "$@"`)), test...).want(t, exitDone, "--tool memcheck --error-exitcode 9", "entropy?bits=2",
		"CPU: not tested: only results of the GPU were asked for", "every check passed")
	call(t, gpu(t, "", sanitizer(t, "exit 9")), test...).want(t, exitFailed, "compute-sanitizer found wrong accesses: see above")
	call(t, gpu(t, "", sanitizer(t, "exit 2")), test...).want(t, exitUsage)
	call(t, gpu(t, "", sanitizer(t, "exit 1")), test...).want(t, exitFailed)
	call(t, []string{sanitizer(t, "exit 0")}, test...).want(t, exitFailed, "--sanitize needs a GPU: ", "MILLRACE_KERNELS")
}

// TestListShowsWhatTheFoldersHave covers compiled and uncompiled operators in MILLRACE_OPERATOR_PATH.
func TestListShowsWhatTheFoldersHave(t *testing.T) {
	folder := entropyFolder(t)
	env := []string{"MILLRACE_OPERATOR_PATH=" + folder}
	path := filepath.Join(folder, "entropy.")
	call(t, env, "operator", "list").want(t, exitDone, "crc32c, version 1, built in, host code, runs on: GPU, CPU",
		"entropy, version 1, "+path+"cu, entropy.cpu.so, thread per record, runs on: GPU, CPU", "parameter bits=4 (uint32, 1 to 6)",
		"neardup, version 1, built in", "parameter bands=20 (uint32, 1 to 64)", "result    bands uint32")
	if err := os.Remove(filepath.Join(folder, "entropy"+compiled.CPUSuffix)); err != nil {
		t.Fatal(err)
	}
	call(t, env, "operator", "list").want(t, exitDone, "entropy, "+path+"cu, can't be described: ", "run `worker operator build "+path+"cu`")
	call(t, []string{"MILLRACE_OPERATOR_PATH=/nothing"}, "operator", "list").want(t, exitFailed, "crc32c, version 1", "/nothing", "no such file")
}
