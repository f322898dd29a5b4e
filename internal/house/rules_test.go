package house

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// rule is one habit of the house. check returns a line for each place that breaks it: the place, what is wrong
// and what to do.
type rule struct {
	name  string
	check func(*tree) []string

	// broken is a tree that breaks the rule, and findings what check says of it.
	broken   map[string]string
	findings []string
}

// rules is all of them. They are defined next to their checks.
var rules = []rule{
	cStaysInCUDA, importsRunOneWay, clientsStayInTheirRoom,
	filesAreShort, packagesAreNamed, packagesAreDocumented,
	testsDoNotSleep, skipsAreLoud, nothingIsLeftOpen, documentsNameWhatExists, operatorsPagesNameWhatExists,
}

// TestHouse holds the repository to the rules.
func TestHouse(t *testing.T) {
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

// TestRulesFindWhatBreaksThem runs every rule over a tree made to break it.
func TestRulesFindWhatBreaksThem(t *testing.T) {
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
