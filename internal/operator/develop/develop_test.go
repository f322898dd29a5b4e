//go:build cgo

package develop

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/operator/cpulib"
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
	if _, err := Compile(t.Context(), source, output); err != nil {
		t.Fatal(err)
	}
	l, err := cpulib.Open(output)
	if err != nil {
		t.Fatal(err)
	}
	return l
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
	r, err := Test(l, "", samples)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 2 || len(r.Findings) != 0 || r.Rate <= 0 || r.Done == 0 || r.Records <= r.Done {
		t.Errorf("%d samples, %+v", len(samples), r)
	}
	if got := r.Samples[0].String() + " " + r.Samples[1].String(); got != `rejected: the record is empty {"longest":3}` {
		t.Errorf("samples: %s", got)
	}
	if _, err := New(folder, "spaces2"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second operator of that name: error %v", err)
	}
	if _, err := New(folder, "Spaces"); err == nil || !strings.Contains(err.Error(), "lower-case") {
		t.Errorf("a name with a capital: error %v", err)
	}
}

func TestWrongSamplesAreNamed(t *testing.T) {
	l := open(t, entropy)
	r, err := Test(l, "bits=1", []Sample{
		{Name: "right", Data: []byte("aaa"), Want: []byte("{\"peak\":3}\n")},
		{Name: "none", Data: []byte("b")},
		{Name: "wrong", Data: []byte("abc"), Want: []byte(`{"peak":4}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) != 1 || r.Findings[0].String() != `batch "samples", record 2 (3 bytes, "abc"): the result of sample wrong is {"peak":3}, want {"peak":4}` {
		t.Errorf("findings %v", r.Findings)
	}
	if _, err := Test(l, "bits=9", nil); err == nil || !strings.Contains(err.Error(), "give a whole number from 1 to 6") {
		t.Errorf("bits=9: error %v", err)
	}
}

func TestMistakesAreFound(t *testing.T) {
	for name, want := range map[string]string{
		"beyond":   `batch "empties", record 0 (0 bytes, ""): it accessed a byte outside the record or its result`,
		"leftover": "its result depends on what was in memory before",
		"neighbor": "its result depends on the other records of the batch",
	} {
		r, err := Test(open(t, "testdata/"+name+".cu"), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, finding := range r.Findings {
			found = found || strings.Contains(finding.String(), want)
		}
		if !found {
			t.Errorf("%s: no %q in %v", name, want, r.Findings)
		}
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

// TestTheDocumentShowsTheExample compares the operator in docs/operators.md with its file, without the comment before its code.
func TestTheDocumentShowsTheExample(t *testing.T) {
	source, err := os.ReadFile(entropy)
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, found := strings.Cut(string(source), "\n#include")
	if !found || !strings.Contains(string(document), "```cuda\n#include"+code+"```") {
		t.Error("docs/operators.md doesn't show entropy.cu as it is")
	}
}

// Every example passes its own test, and those that have samples give the expected results.
func TestExamplesPassTheirTests(t *testing.T) {
	sources, err := filepath.Glob("../../../examples/operators/*/*.cu")
	if err != nil || len(sources) < 2 {
		t.Fatalf("%d examples, %v", len(sources), err)
	}
	queries := map[string]string{"keywords.cu": "words=words.txt"} // tables have no default
	for _, source := range sources {
		t.Run(filepath.Base(source), func(t *testing.T) {
			samples, err := ReadSamples(source, "")
			if err != nil {
				t.Fatal(err)
			}
			l := open(t, source)
			l.Description().Folder = filepath.Dir(source)
			report, err := Test(l, queries[filepath.Base(source)], samples)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				t.Error(f)
			}
			for _, s := range samples {
				if s.Want == nil {
					t.Errorf("the sample %s has no expected result", s.Name)
				}
			}
			if report.Done == 0 {
				t.Error("no record has a result")
			}
		})
	}
}
