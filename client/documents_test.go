package client_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/frame"
	"millrace/internal/record"
)

var update = flag.Bool("update", false, "write the tables of docs/protocol.md, docs/frames.md and docs/results.md")

// These two lines enclose each generated table of a page. The tables list constants with their comments.
const (
	tableBegin = "<!-- table: made by go test ./client -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// TestTablesOfTheDocuments checks that each table exists once and matches the code.
func TestTablesOfTheDocuments(t *testing.T) {
	headers := "| header | on | value |\n| --- | --- | --- |\n"
	for _, c := range constants(t, "headers.go", "Header") {
		on, value, _ := strings.Cut(c.comment, ": ")
		headers += fmt.Sprintf("| `%s` | %s | %s |\n", c.value, on, value)
	}
	framings := "| `MILLRACE_FRAMING` | `Content-Type` with `auto` | meaning |\n| --- | --- | --- |\n"
	for i, c := range constants(t, "../internal/frame/framing.go", "") {
		contentType := "any other, or none"
		switch f := frame.Framing(i); {
		case f == frame.Auto:
			contentType = ""
		case f != frame.None:
			contentType = "`" + frame.ContentTypeOf(f) + "`"
		}
		framings += fmt.Sprintf("| `%v` | %s | %s |\n", frame.Framing(i), contentType, c.comment)
	}
	statuses := "| status | number | meaning | also a dead letter |\n| --- | ---: | --- | --- |\n"
	for i, c := range constants(t, "../internal/record/status.go", "")[:record.Statuses] {
		also := map[bool]string{false: "no", true: "yes"}[record.Status(i).Failed()]
		statuses += fmt.Sprintf("| `%v` | %d | %s | %s |\n", record.Status(i), i, c.comment, also)
	}
	for page, table := range map[string]string{"protocol.md": headers, "frames.md": framings, "results.md": statuses} {
		checkTable(t, "../docs/"+page, "\n"+table+"\n")
	}
}

// TestContentTypesOfFrames checks that MILLRACE_FRAMING=auto recognizes every media type that docs/frames.md names.
func TestContentTypesOfFrames(t *testing.T) {
	page, err := os.ReadFile("../docs/frames.md")
	if err != nil {
		t.Fatal(err)
	}
	types := regexp.MustCompile("`(application/[^`]+)`").FindAllSubmatch(page, -1)
	for _, found := range types {
		if frame.FramingOf(string(found[1])) == frame.None {
			t.Errorf("docs/frames.md names %s, which is no framing", found[1])
		}
	}
	if len(types) < 8 {
		t.Errorf("docs/frames.md names %d media types", len(types))
	}
}

// checkTable compares a table with the page's table. With -update, it replaces the page's table.
func checkTable(t *testing.T, page, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines around the table:\n%s%s", page, tableBegin, tableEnd)
	}
	switch want := before + tableBegin + table + tableEnd + after; {
	case want == string(text):
	case !*update:
		t.Errorf("%s is out of date: run go test ./client -update", page)
	default:
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// constant is a constant with its trailing comment.
type constant struct{ value, comment string }

// constants returns the commented constants whose names start with prefix, in file order. The value is empty unless it
// is a string.
func constants(t *testing.T, file, prefix string) (all []constant) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			s, ok := spec.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(s.Names[0].Name, prefix) || s.Comment == nil {
				continue
			}
			c := constant{comment: strings.TrimSpace(s.Comment.Text())}
			if len(s.Values) == 1 {
				if literal, ok := s.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if c.value, err = strconv.Unquote(literal.Value); err != nil {
						t.Fatal(err)
					}
				}
			}
			all = append(all, c)
		}
	}
	return all
}
