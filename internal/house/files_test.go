package house

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxLines is how long a source file may be. Most should stay under 400.
const maxLines = 500

// sourceSuffixes are the files that people read as code.
var sourceSuffixes = []string{".go", ".cu", ".cuh", ".cpp", ".hpp", ".c", ".h", ".sh", ".py", ".js", ".css", ".html"}

var filesAreShort = rule{
	name: "files are short",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.files {
			if lines := strings.Count(f.text, "\n"); lines > maxLines && slices.Contains(sourceSuffixes, path.Ext(f.path)) {
				found = append(found, fmt.Sprintf("%s: %d lines, want %d at most: it holds more than one idea, split it", f.path, lines, maxLines))
			}
		}
		return found
	},
	broken: map[string]string{
		"kernels/long.cu":  strings.Repeat("\n", maxLines+1),
		"kernels/short.cu": strings.Repeat("\n", maxLines),
		"docs/long.md":     strings.Repeat("\n", maxLines+1),
	},
	findings: []string{"kernels/long.cu: 501 lines, want 500 at most: it holds more than one idea, split it"},
}

// emptyNames say nothing of what a package is for.
var emptyNames = []string{"util", "utils", "helper", "helpers", "common", "misc", "shared", "lib"}

var packagesAreNamed = rule{
	name: "packages are named for what they do",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			name := strings.TrimSuffix(f.code.Name.Name, "_test")
			if slices.Contains(emptyNames, name) {
				found = append(found, fmt.Sprintf("%s: package %s says nothing: name it for what it does", f.path, name))
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/utils/a.go": "package utils",
		"internal/other/a.go": "package common",
		"internal/alloc/a.go": "package alloc",
	},
	findings: []string{
		"internal/other/a.go: package common says nothing: name it for what it does",
		"internal/utils/a.go: package utils says nothing: name it for what it does",
	},
}

var packagesAreDocumented = rule{
	name: "every package has a doc comment",
	check: func(tr *tree) (found []string) {
		documented := map[string]bool{}
		for _, f := range tr.goFiles() {
			if !f.isTest() {
				documented[f.dir()] = documented[f.dir()] || isPackageDoc(f)
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(documented)) {
			if !documented[dir] {
				found = append(found, fmt.Sprintf("%s: no package comment: say in one file, above the package clause, what it is for", dir))
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/a/a.go": "// Package a is documented.\npackage a",
		"internal/a/b.go": "package a",
		"internal/b/a.go": "// Something else.\npackage b",
		"internal/c/a.go": "package c",
		"cmd/d/main.go":   "// Command d is documented.\npackage main",
	},
	findings: []string{
		"internal/b: no package comment: say in one file, above the package clause, what it is for",
		"internal/c: no package comment: say in one file, above the package clause, what it is for",
	},
}

// isPackageDoc says whether f carries its package's comment, in the form that go doc expects of a library. A
// command's may begin as it likes.
func isPackageDoc(f textFile) bool {
	name := f.code.Name.Name
	return f.code.Doc != nil && (name == "main" || strings.HasPrefix(f.code.Doc.Text(), "Package "+name+" "))
}
