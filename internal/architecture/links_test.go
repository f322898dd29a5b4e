package architecture

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var (
	// link is a Markdown link or image. The group is its target.
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

	// quotedPath is a path of this repository between backticks.
	quotedPath = regexp.MustCompile("`((?:cmd|internal|kernels|helm|docs|tools|\\.ci)/[A-Za-z0-9_./-]*)`")

	// elsewhere is a target outside the repository.
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

// targets lists the paths that a line of f names, relative to the root.
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

// exists reports whether the repository has that file or folder, or a build creates it.
func (tr *tree) exists(target string) bool {
	for created := range skipped {
		if target == created || strings.HasPrefix(target, created+"/") {
			return true
		}
	}
	_, err := fs.Stat(tr.fsys, target)
	return err == nil
}

// withoutFences empties the lines of fenced code blocks, because they quote other files. It keeps the number of lines.
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
