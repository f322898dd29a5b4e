package architecture

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// link is a Markdown link or image. The group is its target.
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

	// anchored is a link to a heading. The groups are the page and the anchor. The page is empty if the heading is on
	// the same page.
	anchored = regexp.MustCompile(`\]\(([^()\s#:]*)#([^()\s]+)\)`)

	// linkText is a link in a heading. The group is its text.
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

	// notInAnchors matches the characters that GitHub drops from a heading to form its anchor.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

	// quotedPath is a path of this repository in backticks.
	quotedPath = regexp.MustCompile("`((?:cmd|internal|kernels|helm|docs|tools|\\.ci)/[A-Za-z0-9_./-]*)`")

	// elsewhere is a target outside the repository.
	elsewhere = regexp.MustCompile(`^([a-z]+:|//)`)
)

var documentsNameWhatExists = rule{
	name: "documents name what exists",
	check: func(tr *tree) (found []string) {
		pages := map[string]string{}
		for _, f := range tr.files {
			if path.Ext(f.path) == ".md" {
				pages[f.path] = f.text
			}
		}
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
				for _, m := range anchored.FindAllStringSubmatch(line, -1) {
					page := path.Join(f.dir(), m[1])
					if m[1] == "" {
						page = f.path
					}
					if text, ok := pages[page]; ok && !slices.Contains(anchors(text), m[2]) {
						found = append(found, fmt.Sprintf("%s:%d: %s has no heading for #%s", f.path, number, page, m[2]))
					}
				}
			})
		}
		return found
	},
	broken: map[string]string{
		"README.md": "[here](docs/a.md#part), [gone](docs/b.md)\n" +
			"`docs/a.md`, `docs/c.md`, `kernels/build/libmillrace.so`, `internal/...`\n" +
			"```\n[fenced](docs/d.md)\n```\n## First & [second](docs/a.md)\n" +
			"[out](https://example.com/x.md), [part](#part), [folder](docs/)\n",
		"docs/a.md":        "# Part\n[up](../README.md#first--second), [beside](b.md), [out of the tree](../../x.md)\n",
		"internal/a/a.txt": "",
	},
	findings: []string{
		"README.md:1: docs/b.md does not exist",
		"README.md:2: docs/c.md does not exist",
		"README.md:7: README.md has no heading for #part",
		"docs/a.md:2: docs/b.md does not exist",
		"docs/a.md:2: ../x.md does not exist",
	},
}

// anchors lists the anchors of a page's headings, as GitHub forms them.
func anchors(text string) (list []string) {
	for line := range strings.Lines(withoutFences(text)) {
		if heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && line[0] == '#' {
			heading = notInAnchors.ReplaceAllString(linkText.ReplaceAllString(strings.TrimSpace(heading), "$1"), "")
			list = append(list, strings.ReplaceAll(strings.ToLower(heading), " ", "-"))
		}
	}
	return list
}

// targets lists the paths that a line of f names, relative to the repository's root.
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

// exists reports whether the repository contains the target, or a build creates it.
func (t *tree) exists(target string) bool {
	for created := range skipped {
		if target == created || strings.HasPrefix(target, created+"/") {
			return true
		}
	}
	_, err := fs.Stat(t.fsys, target)
	return err == nil
}

// withoutFences empties the lines of fenced code blocks, because they quote other files. The number of lines stays the
// same.
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
