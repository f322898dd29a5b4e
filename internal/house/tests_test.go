package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// sleepers are the files in which a test may sleep by the real clock, and why it must. There are none: a test
// waits for a channel, holds work back with device.Gater, or runs on a virtual clock. A test that sleeps is
// slow when the machine is fast, and fails when it is slow.
var sleepers = map[string]string{}

var testsDoNotSleep = rule{
	name: "tests do not sleep",
	check: func(tr *tree) (found []string) {
		used := map[string]bool{}
		for _, f := range tr.goFiles() {
			if !f.isTest() && !strings.HasPrefix(f.path, "internal/device/conformance/") {
				continue
			}
			inspectRealTime(f.code, func(call *ast.CallExpr) {
				if !isCall(call, "time", "Sleep") {
					return
				}
				if used[f.path] = true; sleepers[f.path] == "" {
					found = append(found, tr.at(call)+": a test sleeps: wait for the event itself, or use testing/synctest or the virtual clock")
				}
			})
		}
		for _, path := range slices.Sorted(maps.Keys(sleepers)) {
			if !used[path] {
				found = append(found, path+": sleeps no more: take it off the list of sleepers")
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/a/a_test.go": "package a\nimport \"time\"\nfunc f() { time.Sleep(1) }",
		"internal/a/b_test.go": "package a\nimport (\n\"testing/synctest\"\n\"time\"\n)\n" +
			"func g() {\nsynctest.Test(nil, func(t *testing.T) { time.Sleep(1) })\n}",
		"internal/a/a.go":                  "package a\nimport \"time\"\nfunc h() { time.Sleep(1) }",
		"internal/device/conformance/a.go": "package conformance\nimport \"time\"\nfunc f() { time.Sleep(1) }",
	},
	findings: []string{
		"internal/a/a_test.go:3: a test sleeps: wait for the event itself, or use testing/synctest or the virtual clock",
		"internal/device/conformance/a.go:3: a test sleeps: wait for the event itself, or use testing/synctest or the virtual clock",
	},
}

// inspectRealTime visits the calls of a file, but for those inside a bubble of testing/synctest, whose clock
// is virtual.
func inspectRealTime(code *ast.File, visit func(*ast.CallExpr)) {
	ast.Inspect(code, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		visit(call)
		return !isCall(call, "synctest", "Test")
	})
}

// isCall says whether call is pkg.name(...).
func isCall(call *ast.CallExpr, pkg, name string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && (pkg == "" || x.Name == pkg)
}

var skipsAreLoud = rule{
	name: "skips are loud",
	check: func(tr *tree) (found []string) {
		for _, f := range tr.goFiles() {
			if f.isTest() {
				ast.Inspect(f.code, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok && isQuietSkip(call) {
						found = append(found, tr.at(call)+`: a quiet skip: give the reason, beginning with a word in capitals ("SKIPPED: no GPU")`)
					}
					return true
				})
			}
		}
		return found
	},
	broken: map[string]string{
		"internal/a/a_test.go": "package a\nfunc f() {\nt.SkipNow()\nt.Skip()\nt.Skip(\"no GPU\")\nt.Skipf(\"SKIPPED: %v\", 1)\nt.Skip(reason)\nt.Skipf(\"%s\", reason)\n}",
	},
	findings: []string{
		`internal/a/a_test.go:3: a quiet skip: give the reason, beginning with a word in capitals ("SKIPPED: no GPU")`,
		`internal/a/a_test.go:4: a quiet skip: give the reason, beginning with a word in capitals ("SKIPPED: no GPU")`,
		`internal/a/a_test.go:5: a quiet skip: give the reason, beginning with a word in capitals ("SKIPPED: no GPU")`,
	},
}

// isQuietSkip says whether call skips a test without a reason that stands out. A reason that the literal does not
// hold is taken on trust.
func isQuietSkip(call *ast.CallExpr) bool {
	switch {
	case isCall(call, "", "SkipNow"):
		return true
	case !isCall(call, "", "Skip") && !isCall(call, "", "Skipf"):
		return false
	case len(call.Args) == 0:
		return true
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return false
	}
	reason, err := strconv.Unquote(literal.Value)
	if err != nil {
		panic(fmt.Sprintf("house: string literal %s: %v", literal.Value, err)) // the parser has accepted it
	}
	word, _, _ := strings.Cut(strings.TrimLeft(reason, "\n "), " ")
	return !isCapitals(word) && !strings.HasPrefix(word, "%")
}

// isCapitals says whether word has two letters or more and all of them are capitals.
func isCapitals(word string) bool {
	letters := 0
	for _, r := range word {
		if unicode.IsLower(r) {
			return false
		}
		if unicode.IsUpper(r) {
			letters++
		}
	}
	return letters >= 2
}
