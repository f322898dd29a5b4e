package architecture

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxText is the size in bytes of the largest file that is read as text. Hand-written files are far smaller.
const maxText = 1 << 20

// skipped maps each folder that git ignores to a description of its contents. Folders that begin with a dot are skipped
// too, except .ci.
var skipped = map[string]string{
	"bin":           "the built worker",
	"kernels/build": "the built kernel library",
	"gpu-out":       "the output of tools/gpu-check",
	"millrace-data": "the embedded server's storage",

	"docs/examples/javascript/node_modules": "the packages of the JavaScript example",
}

// tree is the repository's text, read once.
type tree struct {
	fsys  fs.FS
	files []textFile // sorted by path
	fset  *token.FileSet
}

// textFile is one file. Paths are relative to the repository's root, with forward slashes.
type textFile struct {
	path string
	text string
	code *ast.File // the parsed file; nil unless it is Go
}

// dir returns the folder of the file. It returns "." for the root.
func (t textFile) dir() string { return path.Dir(t.path) }

// isTest reports whether only go test compiles the file.
func (t textFile) isTest() bool { return strings.HasSuffix(t.path, "_test.go") }

func (t textFile) imports() []string {
	var list []string
	for _, spec := range t.code.Imports {
		list = append(list, strings.Trim(spec.Path.Value, `"`))
	}
	return list
}

// readTree reads every text file of fsys. The test fails if a Go file does not parse.
func readTree(t *testing.T, fsys fs.FS) *tree {
	t.Helper()
	tr := &tree{fsys: fsys, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && isSkipped(p):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		return tr.read(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func isSkipped(dir string) bool {
	if _, ok := skipped[dir]; ok {
		return true
	}
	name := path.Base(dir)
	return strings.HasPrefix(name, ".") && name != "." && name != ".ci"
}

// read adds the file at p if it is text.
func (t *tree) read(p string) error {
	data, err := fs.ReadFile(t.fsys, p)
	if err != nil {
		return err
	}
	if len(data) > maxText || bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return nil
	}
	f := textFile{path: p, text: string(data)}
	if strings.HasSuffix(p, ".go") {
		if f.code, err = parser.ParseFile(t.fset, p, data, parser.ParseComments); err != nil {
			return err
		}
	}
	t.files = append(t.files, f)
	return nil
}

func (t *tree) goFiles() []textFile {
	var list []textFile
	for _, f := range t.files {
		if f.code != nil {
			list = append(list, f)
		}
	}
	return list
}

// at returns the file and line of n, for use in a message.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}
