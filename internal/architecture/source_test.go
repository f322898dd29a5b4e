package architecture

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// callsC lists the only files that may import "C". The first three call the kernel library, the fourth calls user-written
// operators on the CPU, and the fifth calls vectorized loops of built-in operators.
var callsC = []string{
	"internal/device/cuda/call.go", "internal/device/cuda/call_operator.go", "internal/device/cuda/call_neardup.go",
	"internal/operator/cpulib/call.go", "internal/operator/simd/call.go",
}

// compareCallsC may import "C" too, because it belongs to a separate module that is not part of the worker.
const compareCallsC = "examples/operators/compare/library.go"

// fiveFilesImportC is a test because linters read the code that cgo generates, which no longer imports "C".
var fiveFilesImportC = rule{
	name: "five files import C",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			if slices.Contains(f.imports(), "C") && !slices.Contains(callsC, f.path) && f.path != compareCallsC {
				found = append(found, f.path+`: imports "C", which only `+strings.Join(callsC, ", ")+` may: put the call there`)
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/device/cuda/call.go":          "package cuda\nimport \"C\"",
		"internal/device/cuda/call_operator.go": "package cuda\nimport \"C\"",
		"internal/device/cuda/call_neardup.go":  "package cuda\nimport \"C\"",
		"internal/operator/cpulib/call.go":      "package cpulib\nimport \"C\"",
		"internal/operator/simd/call.go":        "package simd\nimport \"C\"",
		compareCallsC:                           "package main\nimport \"C\"",
		"internal/device/cuda/other.go":         "package cuda\nimport \"C\"",
		"internal/bench/a.go":                   "package bench\nimport \"C\"",
	},
	findings: []string{
		`internal/bench/a.go: imports "C", which only internal/device/cuda/call.go, internal/device/cuda/call_operator.go, internal/device/cuda/call_neardup.go, internal/operator/cpulib/call.go, internal/operator/simd/call.go may: put the call there`,
		`internal/device/cuda/other.go: imports "C", which only internal/device/cuda/call.go, internal/device/cuda/call_operator.go, internal/device/cuda/call_neardup.go, internal/operator/cpulib/call.go, internal/operator/simd/call.go may: put the call there`,
	},
}

// maxLines is the maximum length of a source file, in lines. Most files should stay under 400.
const maxLines = 500

// sourceSuffixes are the suffixes of files that people read as code.
var sourceSuffixes = []string{".go", ".cu", ".cuh", ".cpp", ".hpp", ".c", ".h", ".sh", ".py", ".js", ".css", ".html"}

// filesAreShort is a test because most of these languages have no linter here.
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

// openEnd matches the words that mark unfinished work. They are split here so that this file passes.
var openEnd = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

// nothingIsLeftOpen is a test because linters read only Go, and this rule covers every text file.
var nothingIsLeftOpen = rule{
	name: "nothing is left open",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.files {
			eachLine(f.text, func(number int, line string) {
				if word := openEnd.FindString(line); word != "" {
					found = append(found, fmt.Sprintf("%s:%d: %s: do it, or open an issue", f.path, number, word))
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

// eachLine calls visit with the number and text of each line. Numbers start at 1.
func eachLine(text string, visit func(number int, line string)) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		visit(number, strings.TrimSuffix(line, "\n"))
	}
}
