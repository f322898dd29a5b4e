package fakecuda

import (
	"os/exec"
	"testing"
)

// OperatorLibrary compiles a library with an operator that has host code of its own, as LoadLibrary opens it; source is a path relative
// to the repository's root. Without a C++ compiler it skips the test with a message in capitals.
func OperatorLibrary(t testing.TB, source string, flags ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("NOT TESTED: THERE IS NO C++ COMPILER (g++) TO BUILD A LIBRARY WITH AN OPERATOR WITH")
	}
	args := append([]string{"-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"}, flags...)
	return compiled(t, compiler, source, args)
}
