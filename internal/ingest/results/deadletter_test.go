package results

import (
	"errors"
	"os"
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

// TestTheDocumentsTellTheTwoKindsOfTooLargeApart: what helps against a payload that exceeds a batch doesn't help against a result that
// exceeds the server's limit.
func TestTheDocumentsTellTheTwoKindsOfTooLargeApart(t *testing.T) {
	t.Parallel()
	begins, _, _ := strings.Cut(errUnstorable(errors.New("cause")).Error(), ":")
	for page, separator := range map[string]string{"protocol.md": "\n", "runbooks/MillraceDeadLetters.md": "\n- "} {
		text, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for entry := range strings.SplitSeq(string(text), separator) {
			if !strings.Contains(entry, "`"+begins+"`") {
				continue
			}
			told = true
			for _, want := range []string{"`too_large`", "`max_payload`", "`max_msg_size`", "`worker check`", "MILLRACE_RESULT_FORMAT=binary"} {
				if !strings.Contains(entry, want) && !strings.Contains(strings.ReplaceAll(entry, "\n  ", " "), want) {
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
