//go:build cgo

package develop

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/operator/conformance"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/testbuild"
)

const entropy = "../../../examples/operators/entropy/entropy.cu"

// needCompiler skips the test on a machine without a C++ compiler.
func needCompiler(t *testing.T) {
	t.Helper()
	if _, err := findCompiler(); err != nil {
		t.Skip("SKIPPED: " + err.Error())
	}
}

// open compiles an operator and opens it.
func open(t *testing.T, source string) *cpulib.Library {
	t.Helper()
	needCompiler(t)
	output := filepath.Join(t.TempDir(), "operator.cpu.so")
	if err := testbuild.Compile(t.Context(), Compile, source, output); err != nil {
		t.Fatal(err)
	}
	l, err := cpulib.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// answers computes records with an operator on the host device.
func answers(t *testing.T, l *cpulib.Library, query string, records [][]byte) []conformance.Answer {
	t.Helper()
	o, err := l.Description().Bind(query)
	if err != nil {
		t.Fatal(err)
	}
	d, err := host.Open(host.Options{Kernels: []device.HostKernel{l}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := conformance.Open(conformance.Subject{Device: d, Operator: o})
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Compute(t.Context(), records)
	if err := errors.Join(err, r.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCompiledOperatorKnowsItsSource(t *testing.T) {
	text, err := os.ReadFile(entropy)
	if err != nil {
		t.Fatal(err)
	}
	if got := open(t, entropy).Description().Source; got != sha256.Sum256(text) {
		t.Errorf("the description has the hash %x", got)
	}
}

func TestNewOperatorPassesItsTest(t *testing.T) {
	folder := t.TempDir()
	written, err := New(folder, "spaces2")
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, written[0])
	samples, err := ReadSamples(written[0], "")
	if err != nil {
		t.Fatal(err)
	}
	got := answers(t, l, "", Records(samples))
	if len(samples) != 2 || got[0].String()+" "+got[1].String() != `rejected: the record is empty {"longest":3}` {
		t.Errorf("%d samples: %v", len(samples), got)
	}
	if found := CheckSamples(samples, got); len(found) > 0 {
		t.Errorf("findings %v", found)
	}
	if _, err := New(folder, "spaces2"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second operator of that name: error %v", err)
	}
	if _, err := New(folder, "Spaces"); err == nil || !strings.Contains(err.Error(), "lower-case") {
		t.Errorf("a name with a capital: error %v", err)
	}
}

func TestWrongSamplesAreNamed(t *testing.T) {
	samples := []Sample{
		{Name: "right", Data: []byte("aaa"), Want: []byte("{\"peak\":3}\n")},
		{Name: "none", Data: []byte("b")},
		{Name: "wrong", Data: []byte("abc"), Want: []byte(`{"peak":4}`)},
	}
	found := CheckSamples(samples, answers(t, open(t, entropy), "bits=1", Records(samples)))
	if len(found) != 1 || found[0].String() != `batch "samples", record 2 (3 bytes, "abc"): the result of sample wrong is {"peak":3}, want {"peak":4}` {
		t.Errorf("findings %v", found)
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

// mistaken returns what the compiler says about an operator with these declarations and this code.
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

// TestMisspeltNamesSuggestNoInternalOnes uses names that are close to those of members that the headers need.
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
	if _, err := Compile(context.Background(), entropy, filepath.Join(t.TempDir(), "out.so")); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("error %v", err)
	}
	t.Setenv("CXX", "/nothing/c++")
	if _, err := Compile(context.Background(), entropy, filepath.Join(t.TempDir(), "out.so")); err == nil || !strings.Contains(err.Error(), "CXX") {
		t.Errorf("error %v", err)
	}
}

// TestTheTutorialsOperatorGivesItsResults: the operator in docs/operators.md gives the results that the page expects of its samples.
func TestTheTutorialsOperatorGivesItsResults(t *testing.T) {
	needCompiler(t)
	page, err := os.ReadFile("../../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```cuda\n(.*?)```").FindSubmatch(page)
	records := regexp.MustCompile(`(?m)^\$ printf '(.*)' +> (digits\.samples/\S+)$`).FindAllSubmatch(page, -1)
	if code == nil || len(records) != 4 {
		t.Fatalf("the page has no operator, or %d files for samples instead of 4", len(records))
	}
	source := filepath.Join(t.TempDir(), "digits.cu")
	if err := errors.Join(os.Mkdir(samplesFolder(source), 0o700), os.WriteFile(source, code[1], 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := os.WriteFile(filepath.Join(filepath.Dir(source), string(r[2])), r[1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	samples, err := ReadSamples(source, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range CheckSamples(samples, answers(t, open(t, source), "", Records(samples))) {
		t.Error(f)
	}
}

// withoutSamples says for examples without samples what checks their results.
var withoutSamples = map[string]string{"entropy.cu": "tests of package cpulib", "keywords.cu": "tests of package own"}

// The samples of every example have the expected results. Package conformance runs the suite over the examples.
func TestExamplesGiveTheExpectedResults(t *testing.T) {
	sources, err := filepath.Glob("../../../examples/operators/*/*.cu")
	if err != nil || len(sources) < 2 {
		t.Fatalf("%d examples, %v", len(sources), err)
	}
	queries := map[string]string{"keywords.cu": "words=words.txt"} // tables have no default
	for _, source := range sources {
		samples, err := ReadSamples(source, "")
		if err != nil {
			t.Fatal(err)
		}
		if len(samples) == 0 {
			if why := withoutSamples[filepath.Base(source)]; why == "" {
				t.Errorf("%s has no samples", source)
			}
			continue
		}
		t.Run(filepath.Base(source), func(t *testing.T) {
			l := open(t, source)
			l.Description().Folder = filepath.Dir(source)
			for _, f := range CheckSamples(samples, answers(t, l, queries[filepath.Base(source)], Records(samples))) {
				t.Error(f)
			}
			for _, s := range samples {
				if s.Want == nil {
					t.Errorf("the sample %s has no expected result", s.Name)
				}
			}
		})
	}
}
