package results

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestHeaderTextIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	got := headerText(errors.New("one\r\ntwo" + strings.Repeat("x", 1000)))
	if len(got) != 512 || !strings.HasPrefix(got, "one  twoxxx") {
		t.Errorf("%d bytes, %q", len(got), got[:20])
	}
}

// TestTheDocumentsTellTheTwoKindsOfTooLargeApart shows that the docs give different remedies for a payload that
// exceeds a batch and for a result that exceeds the server's limit.
func TestTheDocumentsTellTheTwoKindsOfTooLargeApart(t *testing.T) {
	t.Parallel()
	begins, _, _ := strings.Cut(errUnstorable(errors.New("cause")).Error(), ":")
	for _, page := range []string{"protocol.md", "runbooks/MillraceDeadLetters.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for entry := range strings.Lines(string(text)) {
			if !strings.Contains(entry, "`"+begins+"`") {
				continue
			}
			told = true
			for _, want := range []string{"`too_large`", "`max_payload`", "`max_msg_size`", "`worker check`", "MILLRACE_RESULT_FORMAT=binary"} {
				if !strings.Contains(entry, want) {
					t.Errorf("%s lacks %s where it explains %q:\n%s", page, want, begins, entry)
				}
			}
			if strings.Contains(entry, "MILLRACE_BATCH_BYTES") {
				t.Errorf("%s advises a larger batch for a result that exceeds the server's limit:\n%s", page, entry)
			}
		}
		if !told {
			t.Errorf("%s doesn't explain a dead letter whose error begins with %q", page, begins)
		}
	}
}

// TestReasonsOfTheProtocol shows that the table in docs/protocol.md has exactly the existing reasons.
func TestReasonsOfTheProtocol(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[Reason]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(section, -1) {
		told[Reason(row[1])] = true
	}
	for _, reason := range Reasons {
		if !told[reason] {
			t.Errorf("the page lacks %s", reason)
		}
		delete(told, reason)
	}
	for reason := range told {
		t.Errorf("the page has %s, which is no reason", reason)
	}
}
