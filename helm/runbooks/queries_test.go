package runbooks

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"millrace/helm/exposed"
)

var record = regexp.MustCompile(`(?m)^ +- record: (\S+)$`)

// TestQueriesAskForWhatThereIs parses each line of each query block with Prometheus' parser. Every metric, label and
// label value must exist.
func TestQueriesAskForWhatThereIs(t *testing.T) {
	metrics, err := exposed.Read(docs + "/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(chart + "/files/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range record.FindAllStringSubmatch(string(rules), -1) {
		metrics.Record(found[1])
	}
	checked := 0
	for _, p := range read(t, "*.md", "runbooks/*.md") {
		for _, b := range p.blocks() {
			if b.language != "promql" {
				continue
			}
			for line := range strings.Lines(strings.TrimSpace(b.text)) {
				checked++
				for _, problem := range metrics.Check(strings.TrimSpace(line)) {
					t.Errorf("%s: %s: %s", p.name, strings.TrimSpace(line), problem)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d queries, want at least 10", checked)
	}
}
