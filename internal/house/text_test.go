package house

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// openEnd finds the marks of work put off. They are spelt so that this file does not have them itself.
var openEnd = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

var nothingIsLeftOpen = rule{
	name: "nothing is left open",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.files {
			eachLine(f.text, func(number int, line string) {
				if mark := openEnd.FindString(line); mark != "" {
					found = append(found, fmt.Sprintf("%s:%d: %s: do it, or open an issue", f.path, number, mark))
				}
			})
		}
		return found
	},
	broken: map[string]string{
		"kernels/a.cu": "int x;\n// TO" + "DO: more\n",
		"docs/a.md":    "FIX" + "ME\n",
		".ci/run":      "mktemp name.XX" + "XXXX\n# XX" + "X\n",
		"README.md":    "WhatToDo\n",
	},
	findings: []string{
		".ci/run:2: XX" + "X: do it, or open an issue",
		"docs/a.md:1: FIX" + "ME: do it, or open an issue",
		"kernels/a.cu:2: TO" + "DO: do it, or open an issue",
	},
}

func eachLine(text string, visit func(number int, line string)) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		visit(number, strings.TrimSuffix(line, "\n"))
	}
}

var (
	// link is a Markdown link or image; the group is where it leads.
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

	// quotedPath is a path of this repository between backticks.
	quotedPath = regexp.MustCompile("`((?:cmd|internal|kernels|helm|docs|tools|\\.ci)/[A-Za-z0-9_./-]*)`")

	// elsewhere is what leads out of the repository.
	elsewhere = regexp.MustCompile(`^([a-z]+:|//)`)
)

var documentsNameWhatExists = rule{
	name: "documents name what exists",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.files {
			if path.Ext(f.path) != ".md" {
				continue
			}
			eachLine(withoutFences(f.text), func(number int, line string) {
				for _, target := range targets(f, line) {
					if !tr.exists(target) {
						found = append(found, fmt.Sprintf("%s:%d: %s does not exist", f.path, number, target))
					}
				}
			})
		}
		return found
	},
	broken: map[string]string{
		"README.md": "[here](docs/a.md#part), [gone](docs/b.md)\n" +
			"`docs/a.md`, `docs/c.md`, `kernels/build/libmillrace.so`, `internal/...`\n" +
			"```\n[fenced](docs/d.md)\n```\n" +
			"[out](https://example.com/x.md), [part](#part), [folder](docs/)\n",
		"docs/a.md":        "[up](../README.md), [beside](b.md), [out of the tree](../../x.md)\n",
		"internal/a/a.txt": "",
	},
	findings: []string{
		"README.md:1: docs/b.md does not exist",
		"README.md:2: docs/c.md does not exist",
		"docs/a.md:1: docs/b.md does not exist",
		"docs/a.md:1: ../x.md does not exist",
	},
}

// targets lists the paths that a line names, relative to the root.
func targets(f textFile, line string) (list []string) {
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target != "" && !elsewhere.MatchString(target) {
			list = append(list, path.Join(f.dir(), target))
		}
	}
	for _, m := range quotedPath.FindAllStringSubmatch(line, -1) {
		list = append(list, path.Clean(strings.TrimSuffix(m[1], "...")))
	}
	return list
}

// exists says whether the repository has that file or folder, or makes it.
func (tr *tree) exists(target string) bool {
	for made := range skipped {
		if target == made || strings.HasPrefix(target, made+"/") {
			return true
		}
	}
	_, err := fs.Stat(tr.fsys, target)
	return err == nil
}

// withoutFences empties the lines of fenced code blocks, which show what other files hold, and keeps the count
// of lines.
func withoutFences(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence || fenced {
			line = "\n"
		}
		if fence {
			fenced = !fenced
		}
		b.WriteString(line)
	}
	return b.String()
}
