package architecture

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// skipsGiveAReason is a test because linters do not check the argument of a call.
var skipsGiveAReason = rule{
	name: "skips give a reason",
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

// isQuietSkip reports whether call skips a test without a conspicuous reason. Any reason that is not a literal passes.
func isQuietSkip(call *ast.CallExpr) bool {
	switch {
	case isMethod(call, "SkipNow"):
		return true
	case !isMethod(call, "Skip", "Skipf"):
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
		panic(fmt.Sprintf("architecture: string literal %s: %v", literal.Value, err)) // the parser has accepted the literal
	}
	word, _, _ := strings.Cut(strings.TrimLeft(reason, "\n "), " ")
	return !isCapitals(word) && !strings.HasPrefix(word, "%")
}

// isMethod reports whether call is x.name(...) for one of the names.
func isMethod(call *ast.CallExpr, names ...string) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(names, f.Sel.Name) {
		return false
	}
	_, ok = f.X.(*ast.Ident)
	return ok
}

// isCapitals reports whether word has at least two letters and all of them are capitals.
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
