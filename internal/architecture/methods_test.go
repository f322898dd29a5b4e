package architecture

import (
	"fmt"
	"go/ast"
	"slices"
)

// maxMethodFiles is the maximum number of files that declare methods of one type in ingest.
const maxMethodFiles = 3

// methodsStayTogether is a test because linters check each file alone.
var methodsStayTogether = rule{
	name: "methods of a type of ingest are in few files",
	check: func(tr *tree) (found []string) {
		for dir, files := range tr.ingestPackages() {
			for name, places := range methodFiles(files) {
				if len(places) > maxMethodFiles {
					found = append(found, fmt.Sprintf("%s: %s has methods in %d files, want %d at most: divide the type", dir, name, len(places), maxMethodFiles))
				}
			}
		}
		slices.Sort(found)
		return found
	},
	broken: map[string]string{
		"internal/ingest/a/1.go": "package a\ntype A struct{}\ntype B struct{}\nfunc (A) f() {}\nfunc (b *B) f() {}\nfunc (b *B) g() {}",
		"internal/ingest/a/2.go": "package a\nfunc (a *A) g() {}\nfunc (B) h() {}",
		"internal/ingest/a/3.go": "package a\nfunc (a A) h() {}\nfunc (b B) i() {}",
		"internal/ingest/a/4.go": "package a\nfunc (a A) i() {}",
	},
	findings: []string{"internal/ingest/a: A has methods in 4 files, want 3 at most: divide the type"},
}

// methodFiles returns, for each type of a package, the files that declare its methods.
func methodFiles(files []textFile) map[string]map[string]bool {
	places := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.code.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil {
				continue
			}
			name := typeName(m.Recv.List[0].Type)
			if places[name] == nil {
				places[name] = map[string]bool{}
			}
			places[name][f.path] = true
		}
	}
	return places
}

// typeName returns a type as text, without type parameters.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
