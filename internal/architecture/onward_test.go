package architecture

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"math/bits"
	"path"
	"slices"
	"strings"
)

// maxBackward is the maximum number of pairs of files in which the lower file refers to the upper one. Pairs are
// counted within packages, and summed over all packages of internal/ingest.
const maxBackward = 5

// filesReferOneWay is a test because linters check only references between packages. It orders the files of each
// package so that as few references as possible go backward.
var filesReferOneWay = rule{
	name: "files of ingest refer one way",
	check: func(tr *tree) (found []string) {
		all, places := 0, []string{}
		for dir, files := range tr.ingestPackages() {
			if n := backward(referencesOf(files)); n > 0 {
				all += n
				places = append(places, fmt.Sprintf("%s %d", dir, n))
			}
		}
		if all > maxBackward {
			slices.Sort(places)
			found = append(found, fmt.Sprintf("internal/ingest: %d references go backward between files, want %d at most: move declarations to the files that need them (%s)",
				all, maxBackward, strings.Join(places, ", ")))
		}
		return found
	},
	broken:   ringOfFiles(maxBackward + 2),
	findings: []string{"internal/ingest: 6 references go backward between files, want 5 at most: move declarations to the files that need them (internal/ingest/ring 6)"},
}

// ringOfFiles returns a package of n files. The first file refers to each other file, and each other file refers to the
// first.
func ringOfFiles(n int) map[string]string {
	files, hub := map[string]string{}, "package ring\ntype Hub struct {\n"
	for i := 1; i < n; i++ {
		files[fmt.Sprintf("internal/ingest/ring/f%d.go", i)] = fmt.Sprintf("package ring\ntype F%d struct{ Hub *Hub }\n", i)
		hub += fmt.Sprintf("\tf%d F%d\n", i, i)
	}
	files["internal/ingest/ring/hub.go"] = hub + "}\n"
	return files
}

// ingestPackages returns the files of each package of ingest, without tests.
func (t *tree) ingestPackages() map[string][]textFile {
	packages := map[string][]textFile{}
	for _, f := range t.goFiles() {
		if strings.HasPrefix(f.path, "internal/ingest/") && !f.isTest() {
			packages[f.dir()] = append(packages[f.dir()], f)
		}
	}
	return packages
}

// referencesOf returns, for each file of a package, the files that it refers to.
func referencesOf(files []textFile) map[string]map[string]bool {
	owners, references := map[string]string{}, map[string]map[string]bool{}
	for _, f := range files {
		for _, name := range declared(f.code) {
			owners[name] = path.Base(f.path)
		}
	}
	for _, f := range files {
		from := path.Base(f.path)
		references[from] = map[string]bool{}
		for _, name := range used(f.code) {
			if owner := owners[name]; owner != "" && owner != from {
				references[from][owner] = true
			}
		}
	}
	return references
}

// declared lists the names that a file declares in its package, except methods.
func declared(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// used lists the names that a file uses. It omits fields, methods, and names that the using declaration itself
// declares.
func used(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		uses, own := []string{}, map[string]bool{}
		var visit func(n ast.Node) bool
		visit = func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl: // its name isn't a use
				if n.Recv != nil {
					ast.Inspect(n.Recv, visit)
				}
				ast.Inspect(n.Type, visit)
				if n.Body != nil {
					ast.Inspect(n.Body, visit)
				}
				return false
			case *ast.SelectorExpr:
				ast.Inspect(n.X, visit)
				return false
			case *ast.KeyValueExpr:
				ast.Inspect(n.Value, visit)
				return false
			case *ast.StructType: // field names aren't used alone
				for _, field := range n.Fields.List {
					ast.Inspect(field.Type, visit)
				}
				return false
			case *ast.Field:
				ast.Inspect(n.Type, visit)
				ownNames(own, n.Names...)
				return false
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					ownNames(own, n.Lhs...)
				}
			case *ast.RangeStmt:
				ownNames(own, n.Key, n.Value)
			case *ast.Ident:
				uses = append(uses, n.Name)
			}
			return true
		}
		ast.Inspect(d, visit)
		names = append(names, slices.DeleteFunc(uses, func(name string) bool { return own[name] })...)
	}
	return names
}

// ownNames adds the expressions that are names to own.
func ownNames[E ast.Expr](own map[string]bool, list ...E) {
	for _, e := range list {
		if id, ok := ast.Expr(e).(*ast.Ident); ok && id != nil {
			own[id.Name] = true
		}
	}
}

// backward returns the smallest number of references that go backward, over all orders of the files.
func backward(references map[string]map[string]bool) int {
	files := inCycles(references)
	refers := make([]uint, len(files))
	for i, from := range files {
		for j, to := range files {
			if references[from][to] {
				refers[i] |= 1 << j
			}
		}
	}
	minimum := make([]int, 1<<len(files)) // indexed by the set of the lowest files, in their best order
	for set := 1; set < len(minimum); set++ {
		minimum[set] = len(files) * len(files)
		for top := range files {
			if lower := set &^ (1 << top); lower != set {
				upward := 0
				for i := range files {
					upward += bits.OnesCount(uint(lower>>i&1) & (refers[i] >> top & 1))
				}
				minimum[set] = min(minimum[set], minimum[lower]+upward)
			}
		}
	}
	return minimum[len(minimum)-1]
}

// inCycles returns the files that may be part of a cycle. It repeatedly drops files that refer to no other file, or to
// which no other file refers.
func inCycles(references map[string]map[string]bool) []string {
	left := slices.Sorted(maps.Keys(references))
	for {
		all := slices.Clone(left)
		left = slices.DeleteFunc(left, func(f string) bool {
			refers := slices.ContainsFunc(all, func(g string) bool { return references[f][g] })
			referred := slices.ContainsFunc(all, func(g string) bool { return references[g][f] })
			return !refers || !referred
		})
		if len(left) == len(all) {
			return left
		}
	}
}
