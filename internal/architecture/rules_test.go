package architecture

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// rule is one rule of the repository. check returns a line for each violation: the place, the mistake, and the remedy.
type rule struct {
	name  string
	check func(*tree) []string

	// broken is a tree that breaks the rule, and findings are the lines that check returns for it.
	broken   map[string]string
	findings []string
}

// rules lists every rule. Each rule is defined next to its check.
var rules = []rule{
	fiveFilesImportC, filesAreShort, filesReferOneWay, methodsStayTogether, skipsGiveAReason, nothingIsLeftOpen,
	documentsNameWhatExists, runbooksNameWhatExists, gpusAreListed,
}

func TestArchitecture(t *testing.T) {
	tr := readTree(t, os.DirFS("../.."))
	if _, err := os.Stat("../../go.mod"); err != nil || len(tr.files) == 0 {
		t.Fatalf("the repository's root is not two folders up: %v", err)
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(tr) {
				t.Error(finding)
			}
		})
	}
}

// TestRulesFindViolations checks each rule on a tree that breaks it.
func TestRulesFindViolations(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			if len(r.findings) == 0 {
				t.Fatal("the rule has no tree that breaks it")
			}
			fsys := fstest.MapFS{}
			for path, text := range r.broken {
				fsys[path] = &fstest.MapFile{Data: []byte(text)}
			}
			got := r.check(readTree(t, fsys))
			if !slices.Equal(got, r.findings) {
				t.Errorf("found\n%q\nwant\n%q", got, r.findings)
			}
		})
	}
}
