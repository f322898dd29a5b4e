package loglimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// logged returns the only record that f logs, decoded from JSON, and the length of its line.
func logged(t *testing.T, f func(*slog.Logger)) (record map[string]any, bytesOfLine int) {
	t.Helper()
	var out bytes.Buffer
	f(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: TruncateAttr})))
	if err := json.Unmarshal(out.Bytes(), &record); err != nil {
		t.Fatal(err)
	}
	return record, out.Len()
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxText-1) + "é and more"
	record, bytesOfLine := logged(t, func(log *slog.Logger) {
		log.Error(long, "text", long, "error", errors.Join(errors.New("first"), errors.New(long)), "group", slog.GroupValue(slog.String("inner", long)))
	})
	for name, text := range map[string]any{"msg": record["msg"], "text": record["text"], "inner": record["group"].(map[string]any)["inner"]} {
		if want := strings.Repeat("x", MaxText-1) + " ... (11 bytes left out)"; text != want {
			t.Errorf("%s has %d bytes and ends with %q, want %q", name, len(text.(string)), text.(string)[MaxText-10:], want[MaxText-10:])
		}
	}
	if text := record["error"].(string); !strings.HasPrefix(text, "first\nxxx") || !strings.HasSuffix(text, " bytes left out)") {
		t.Errorf("the error is %.20q ... %q", text, text[len(text)-40:])
	}
	if bytesOfLine > 5*MaxText {
		t.Errorf("the line has %d bytes", bytesOfLine)
	}
}

// absent is an error whose Error method panics on nil.
type absent struct{ text string }

func (a *absent) Error() string { return a.text }

func TestShortValuesAreKept(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("y", MaxText)
	record, _ := logged(t, func(log *slog.Logger) {
		log.Warn("message", "text", whole, "error", errors.New("an error"), "number", 7, "list", []string{"a", "b"}, "none", nil, "absent", (*absent)(nil))
	})
	if record["text"] != whole || record["error"] != "an error" || record["number"] != 7.0 || len(record["list"].([]any)) != 2 || record["none"] != nil || record["absent"] != "<nil>" {
		t.Errorf("the record is %v", record)
	}
}
