//go:build cgo

package cpulib

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// needCompiler skips the test without a C++ compiler.
func needCompiler(t *testing.T) {
	t.Helper()
	if _, err := findCompiler(); err != nil {
		t.Skip("SKIPPED: " + err.Error())
	}
}

func TestCompiledOperatorKnowsItsSource(t *testing.T) {
	needCompiler(t)
	text, err := os.ReadFile(entropyCU)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Compile(t.Context(), entropyCU, filepath.Join(t.TempDir(), "operator.cpu.so"))
	if err != nil || d.Source != sha256.Sum256(text) {
		t.Errorf("the description has the hash %x, %v", d.Source, err)
	}
}

func TestSourcesThatAreNoOperatorAreRefused(t *testing.T) {
	needCompiler(t)
	text := filepath.Join(t.TempDir(), "readme.txt")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"testdata/other.cu":      `declares the operator "another": rename the file to another.cu`,
		"testdata/none.cu":       "has no operator: declare one with MILLRACE_OPERATOR",
		"testdata/Missing.cu":    "can't be the name",
		"testdata/missing.cu":    "no such file",
		text:                     "ends with .cu",
		filepath.Dir(text) + "/": "ends with .cu",
	} {
		folder := t.TempDir()
		if _, err := Compile(t.Context(), source, filepath.Join(folder, "out.so")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", source, err, want)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", source, left, err)
		}
	}
}

func TestCompilerErrorsAppearAsTheCompilerWroteThem(t *testing.T) {
	needCompiler(t)
	_, err := Compile(t.Context(), "testdata/typo.cu", filepath.Join(t.TempDir(), "out.so"))
	var wrong *CompileError
	if !errors.As(err, &wrong) {
		t.Fatalf("error %v", err)
	}
	for _, text := range []string{"testdata/typo.cu:8:12: error:", "sise", "^"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("no %q in\n%v", text, err)
		}
	}
}

// mistaken returns the compiler's errors for an operator with the given declarations and code.
func mistaken(t *testing.T, declarations, code string) string {
	t.Helper()
	needCompiler(t)
	folder := t.TempDir()
	source := filepath.Join(folder, "mistaken.cu")
	text := "#include <millrace/operator.cuh>\nMILLRACE_OPERATOR(mistaken, 1)\nMILLRACE_PARAM(uint32_t, most, 4, 1, 8)\n" + declarations +
		"\nMILLRACE_RECORD(record, params, result) { " + code + " }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Compile(t.Context(), source, filepath.Join(folder, "out.so"))
	var wrong *CompileError
	if !errors.As(err, &wrong) {
		t.Fatalf("%s: error %v", declarations, err)
	}
	return wrong.Log
}

func TestATypeThatNoFieldCanHaveIsOneError(t *testing.T) {
	const use = ": use uint8_t to uint64_t, int8_t to int64_t, float or double\n"
	declarations := map[string]string{
		"MILLRACE_RESULT(bool, found)":                "field found can't be a bool" + use,
		"MILLRACE_RESULT_ARRAY(char, letters, 4)":     "field letters can't be a char" + use,
		"MILLRACE_RESULT_ARRAY_BY(bool, all, most)":   "field all can't be a bool" + use,
		"MILLRACE_PARAM(bool, on, true, false, true)": "parameter on can't be a bool" + use,
	}
	log := mistaken(t, strings.Join(slices.Collect(maps.Keys(declarations)), "\n"), "")
	for declaration, want := range declarations {
		if strings.Count(log, want) != 1 {
			t.Errorf("%s: no error with %q", declaration, want)
		}
	}
	if strings.Count(log, "error:") != len(declarations) || strings.Count(log, "\n") > 8*len(declarations) {
		t.Errorf("want an error of few lines for each of %d declarations, have\n%s", len(declarations), log)
	}
}

// TestMisspeltNamesSuggestNoInternalOnes uses names that resemble internal members of the headers.
func TestMisspeltNamesSuggestNoInternalOnes(t *testing.T) {
	wrong := []string{
		"result.count", "result.code", "result.describe", "result.clear()", "result.store", "result.arrays", "result.before", "result.field",
		"params.count", "params.bytes", "params.at", "params.out_of_bounds", "result.list.at(0)", "result.text.at(0)",
	}
	log := mistaken(t, "MILLRACE_RESULT_ARRAY(uint32_t, list, 2)\nMILLRACE_RESULT_BYTES(text, 4, 0)", "(void)"+strings.Join(wrong, "; (void)")+";")
	if strings.Count(log, "error:") != len(wrong) || strings.Contains(log, "did you mean") {
		t.Errorf("want %d errors without a suggestion, have\n%s", len(wrong), log)
	}
}

func TestWithoutACompilerTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CXX", "")
	if _, err := Compile(context.Background(), entropyCU, filepath.Join(t.TempDir(), "out.so")); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("error %v", err)
	}
	t.Setenv("CXX", "/nothing/c++")
	if _, err := Compile(context.Background(), entropyCU, filepath.Join(t.TempDir(), "out.so")); err == nil || !strings.Contains(err.Error(), "CXX") {
		t.Errorf("error %v", err)
	}
}
