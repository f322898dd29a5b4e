//go:build cgo

package devkit

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/operator/cpulib"
)

// answers runs an operator on records with the host device.
func answers(t *testing.T, l *cpulib.Library, query string, records [][]byte) []Answer {
	t.Helper()
	r := runner(t, Subject{Device: onHost(t, l), Operator: bind(t, l.Description(), "?"+query)})
	all, err := r.Compute(t.Context(), samplesBatch, records)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestNewOperatorPassesItsTest(t *testing.T) {
	folder := t.TempDir()
	written, err := New(folder, "spaces2")
	if err != nil {
		t.Fatal(err)
	}
	l := libraryOf(t, written[0])
	samples, err := ReadSamples(written[0], "")
	if err != nil {
		t.Fatal(err)
	}
	got := answers(t, l, "", records(samples))
	if len(samples) != 2 || got[0].String()+" "+got[1].String() != `rejected: the record is empty {"longest":3}` {
		t.Errorf("%d samples: %v", len(samples), got)
	}
	if found := checkSamples(samples, got); len(found) > 0 {
		t.Errorf("findings %v", found)
	}
	if _, err := New(folder, "spaces2"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second operator with that name: error %v", err)
	}
	if _, err := New(folder, "Spaces"); err == nil || !strings.Contains(err.Error(), "lower-case") {
		t.Errorf("a name with a capital letter: error %v", err)
	}
}

func TestWrongSamplesAreNamed(t *testing.T) {
	samples := []Sample{
		{Name: "right", Data: []byte("aaa"), Want: []byte("{\"peak\":3}\n")},
		{Name: "none", Data: []byte("b")},
		{Name: "wrong", Data: []byte("abc"), Want: []byte(`{"peak":4}`)},
	}
	found := checkSamples(samples, answers(t, library(t, "examples/operators/entropy/entropy.cu"), "bits=1", records(samples)))
	if len(found) != 1 || found[0].String() != `batch "samples", record 2 (3 bytes, "abc"): the result of sample wrong is {"peak":3}, want {"peak":4}` {
		t.Errorf("findings %v", found)
	}
}

// TestTheTutorialsOperatorGivesItsResults: the operator in docs/operators.md returns the page's expected results for its samples.
func TestTheTutorialsOperatorGivesItsResults(t *testing.T) {
	page, err := os.ReadFile(root + "docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)```cuda\n(.*?)```").FindSubmatch(page)
	files := regexp.MustCompile(`(?m)^\$ printf '(.*)' +> (digits\.samples/\S+)$`).FindAllSubmatch(page, -1)
	if code == nil || len(files) != 4 {
		t.Fatalf("the page has no operator, or %d files for samples instead of 4", len(files))
	}
	source := filepath.Join(t.TempDir(), "digits.cu")
	if err := errors.Join(os.Mkdir(samplesFolder(source), 0o700), os.WriteFile(source, code[1], 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(filepath.Dir(source), string(f[2])), f[1], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	samples, err := ReadSamples(source, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range checkSamples(samples, answers(t, libraryOf(t, source), "", records(samples))) {
		t.Error(f)
	}
}

// withoutSamples maps examples without samples to the tests that check their results.
var withoutSamples = map[string]string{"entropy.cu": "tests of package cpulib", "keywords.cu": "tests of package userops"}

// TestExamplesGiveTheExpectedResults checks the samples of every example. Package conformance runs the suite on the examples.
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
			l := libraryOf(t, source)
			l.Description().Folder = filepath.Dir(source)
			for _, f := range checkSamples(samples, answers(t, l, queries[filepath.Base(source)], records(samples))) {
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
