package fakecuda

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"millrace/internal/operator/testbuild"
)

// Image compiles an operator into an image that the fake library can load in place of a cubin; source is a path relative to the
// repository's root. Without a C++ compiler it skips the test with a message in capitals.
func Image(t testing.TB, source string) []byte {
	t.Helper()
	image, err := os.ReadFile(imageFile(t, source))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Fatbin returns the image as the fake library takes it in place of a fatbin.
func Fatbin(image []byte) []byte {
	header := binary.LittleEndian.AppendUint32(nil, 0xba55ed50)
	header = binary.LittleEndian.AppendUint16(header, 1)
	header = binary.LittleEndian.AppendUint16(header, 16) // bytes of the header
	header = binary.LittleEndian.AppendUint64(header, uint64(len(image)))
	return append(header, image...)
}

// PTX compiles an operator like Image, and returns it as the fake library takes it in place of PTX.
func PTX(t testing.TB, source string) []byte {
	t.Helper()
	return []byte("// .version " + imageFile(t, source) + "\n")
}

// imageFile compiles an operator and returns the path of the result.
func imageFile(t testing.TB, source string) string {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("NOT TESTED: THERE IS NO C++ COMPILER (g++) TO BUILD AN OPERATOR FOR THE FAKE KERNEL LIBRARY WITH")
	}
	args := []string{"-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-ffp-contract=off"}
	return compiled(t, compiler, source, args)
}

// compiled compiles a source, whose path is relative to the repository's root, and returns the path of the library.
func compiled(t testing.TB, compiler, source string, args []string) string {
	t.Helper()
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
