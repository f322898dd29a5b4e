// Package fakecuda builds a kernel library for tests without a GPU. The library is the real kernels/runtime, built
// against a fake CUDA runtime. The fake works immediately, in host memory, and its calls fail as configured (see
// kernels/test/fake/control.hpp).
//
// Tests of packages cuda, devkit and faults, and of cmd/worker, use it. Start reading with Library and Set.
package fakecuda

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/internal/operator/testbuild"
)

// Env is the environment variable that names the settings file of a process's fake library. The library reads it once.
const Env = "MILLRACE_FAKE_CUDA"

// fileBytes is the size of a settings file, which the library maps.
const fileBytes = 4096

// kernels returns the folder of the kernels' sources.
func kernels() string { return filepath.Join(testbuild.Root(), "kernels") }

// architectures defines the compute capabilities that the library claims to support, in nvcc's format.
const architectures = "-D__CUDA_ARCH_LIST__=750,800,900"

// sources are patterns for the library's source files, relative to the folder that kernels returns.
var sources = []string{"runtime/*.cpp", "runtime/probe.cu", "test/fake/*.cpp"}

// Library builds the library, unless it has been built before, and returns its path. Without a C++ compiler it skips
// the test with a message in capitals.
func Library(t testing.TB) string {
	t.Helper()
	compiler, root := compiler(t), kernels()
	var files []string
	for _, pattern := range sources {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Skipf("NOT TESTED: THE KERNELS' SOURCES ARE NOT HERE: %s, %v", filepath.Join(root, pattern), err)
		}
		files = append(files, found...)
	}
	args := append([]string{"-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
		architectures, "-I" + filepath.Join(root, "test/fake"), "-I" + filepath.Join(root, "include"), "-x", "c++"}, files...)
	path, err := testbuild.Built(nil, func(output string) *exec.Cmd { // all files of the kernels are inputs
		return exec.Command(compiler, append(args[:len(args):len(args)], "-o", output)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func compiler(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("NOT TESTED: THERE IS NO C++ COMPILER (g++) TO BUILD FOR THE FAKE CUDA RUNTIME WITH")
	}
	return path
}

// own holds the settings of this process.
var own = struct {
	once sync.Once
	path string
	err  error
}{}

var serial atomic.Uint64

// Set makes the fake library of this process follow settings until the next Set, and resets its call counters. Tests
// that use Set can't run in parallel.
func Set(t testing.TB, settings string) {
	t.Helper()
	own.once.Do(func() {
		var f *os.File
		if f, own.err = os.CreateTemp("", "millrace-fake-cuda-"); own.err == nil { //nolint:usetesting // all tests of the process share the file
			own.path = f.Name()
			_ = f.Close()                                                        // nothing was written
			own.err = errors.Join(write(own.path, ""), os.Setenv(Env, own.path)) //nolint:usetesting // all tests of the process share the variable
		}
	})
	if own.err != nil {
		t.Fatal(own.err)
	}
	if err := write(own.path, settings); err != nil {
		t.Fatal(err)
	}
}

// File writes settings for another process and returns the value for that process's Env.
func File(t testing.TB, settings string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake-cuda")
	if err := write(path, settings); err != nil {
		t.Fatal(err)
	}
	return path
}

// write changes a settings file in place. It writes the generation number last, because a new number makes the library
// read the settings.
func write(path, settings string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	body := make([]byte, fileBytes-8)
	copy(body[:len(body)-1], settings)
	_, err = f.WriteAt(body, 8)
	if err == nil {
		_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, serial.Add(1)), 0)
	}
	return errors.Join(err, f.Close())
}

// Image compiles an operator into an image that the fake library loads in place of a cubin. source is a path relative
// to the repository's root. Without a C++ compiler, Image skips the test with a message in capitals.
func Image(t testing.TB, source string) []byte {
	t.Helper()
	image, err := os.ReadFile(imageFile(t, source))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Fatbin returns the image in the format that the fake library loads in place of a fatbin.
func Fatbin(image []byte) []byte {
	header := binary.LittleEndian.AppendUint32(nil, 0xba55ed50)
	header = binary.LittleEndian.AppendUint16(header, 1)
	header = binary.LittleEndian.AppendUint16(header, 16) // size of the header in bytes
	header = binary.LittleEndian.AppendUint64(header, uint64(len(image)))
	return append(header, image...)
}

// PTX compiles an operator like Image, into the format that the fake library loads in place of PTX.
func PTX(t testing.TB, source string) []byte {
	t.Helper()
	return []byte("// .version " + imageFile(t, source) + "\n")
}

// imageFile compiles an operator and returns the path of the result.
func imageFile(t testing.TB, source string) string {
	t.Helper()
	return compiled(t, source, "-fno-gnu-unique", "-ffp-contract=off")
}

// compiled compiles source and returns the path of the library. source is relative to the repository's root.
func compiled(t testing.TB, source string, flags ...string) string {
	t.Helper()
	compiler := compiler(t)
	args := append([]string{"-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"}, flags...)
	source = filepath.Join(testbuild.Root(), source)
	library, err := testbuild.Output([]string{source}, func(output string) *exec.Cmd {
		return exec.Command(compiler, append(args[:len(args):len(args)], "-I"+filepath.Join(kernels(), "include"), "-x", "c++", source, "-o", output)...)
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "operator.so")
	if err := os.WriteFile(path, library, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// OperatorLibrary compiles a library for LoadLibrary, with an operator that has its own host code. source is as for
// Image. Without a C++ compiler, OperatorLibrary skips the test with a message in capitals.
func OperatorLibrary(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return compiled(t, source, append([]string{"-Wall", "-Wextra", "-Werror"}, flags...)...)
}
