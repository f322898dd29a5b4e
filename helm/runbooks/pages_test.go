package runbooks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	docs      = "../../docs"
	chart     = "../millrace"
	dashboard = chart + "/files/dashboard.json"
)

type page struct {
	name string // path below docs
	text string
}

// read returns the pages below docs that match a pattern. The test fails if no page matches.
func read(t *testing.T, patterns ...string) (list []page) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(docs, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, page{strings.TrimPrefix(file, docs+"/"), string(text)})
		}
	}
	return list
}

type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$")

func (p page) blocks() (list []block) {
	for _, found := range fence.FindAllStringSubmatch(p.text, -1) {
		list = append(list, block{found[2], strings.ReplaceAll("\n"+found[3], "\n"+found[1], "\n")})
	}
	return list
}

// values returns the paths of all values of the chart, such as config.lanes and config.
func values(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	return below("", root)
}

func below(prefix string, v map[string]any) (list []string) {
	for key, inner := range v {
		list = append(list, prefix+key)
		m, ok := inner.(map[string]any)
		if ok && len(m) == 0 {
			list = append(list, prefix+key+".") // Kubernetes defines the keys of the map
		}
		list = append(list, below(prefix+key+".", m)...)
	}
	return list
}

// dotted matches code that may be a value of the chart, with or without an assignment.
var dotted = regexp.MustCompile("(?:`|--set(?:-string)? |# |, )([a-z][A-Za-z]*(?:\\.[A-Za-z]+)+)(?:=|`|,|;|\\s|$)")

// TestRunbooksNameValuesThatExist checks each dotted name whose first part is a key of the chart's values.
func TestRunbooksNameValuesThatExist(t *testing.T) {
	known, named := values(t), 0
	for _, p := range read(t, "runbooks/*.md", "alerts.md", "troubleshooting.md", "kubernetes.md") {
		for _, found := range dotted.FindAllStringSubmatch(p.text, -1) {
			first, _, _ := strings.Cut(found[1], ".")
			if !slices.Contains(known, first) {
				continue // a file, a Go name or a subject
			}
			named++
			if !slices.ContainsFunc(known, func(value string) bool {
				return found[1] == value || strings.HasSuffix(value, ".") && strings.HasPrefix(found[1], value)
			}) {
				t.Errorf("%s names %s, but the chart has no such value", p.name, found[1])
			}
		}
	}
	if named < 60 {
		t.Errorf("only %d values are named, want more than 60: has the pages' form changed?", named)
	}
}

var variable = regexp.MustCompile(`\bMILLRACE_[A-Z_]+`)

// valueOf returns the name of the chart's value for a variable of the worker.
func valueOf(name string) string {
	words := strings.Split(strings.ToLower(strings.TrimPrefix(name, "MILLRACE_")), "_")
	if name == "MILLRACE_HTTP_ADDR" {
		return "http.port"
	}
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return "config." + strings.Join(words, "")
}

// TestVariablesHaveTheirValuesBesideThem shows that a page that names a variable also names the chart's value, which
// people on Kubernetes set.
func TestVariablesHaveTheirValuesBesideThem(t *testing.T) {
	known, seen := values(t), 0
	for _, p := range read(t, "runbooks/*.md") {
		for _, name := range variable.FindAllString(p.text, -1) {
			seen++
			value := valueOf(name)
			if !slices.Contains(known, value) {
				t.Errorf("%s names %s, but the chart has no value %s", p.name, name, value)
			}
			if !strings.Contains(p.text, value) {
				t.Errorf("%s names %s, but not the chart's %s", p.name, name, value)
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d variables in the runbooks, want more than 20", seen)
	}
}

var (
	italic = regexp.MustCompile(`\*([A-Z0-9][^*\n]*(?:\n[^*\n]+)?)\*`)
	title  = regexp.MustCompile(`"title": "([^"]+)"`)
)

// TestRunbooksNamePanelsThatExist checks names in italics, which are titles of dashboard panels.
func TestRunbooksNamePanelsThatExist(t *testing.T) {
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, found := range title.FindAllStringSubmatch(string(text), -1) {
		titles = append(titles, found[1])
	}
	named := 0
	for _, p := range read(t, "runbooks/*.md") {
		for _, found := range italic.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
			named++
			if name := strings.Join(strings.Fields(found[1]), " "); name != "Targets" && !slices.Contains(titles, name) { // a page of Prometheus
				t.Errorf("%s names the panel %q, which the dashboard doesn't have", p.name, name)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d panels are named, want more than 20", named)
	}
}
