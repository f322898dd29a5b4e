package loglimit

import (
	"fmt"
	"log/slog"
	"strings"
)

// MaxText bounds the message of a record and the text of each of its attributes, in bytes. A log collector cuts lines, often at
// 16 KiB, and a JSON record that is cut can't be read.
const MaxText = 4 << 10

// Cut cuts a text that is longer than MaxText and says how much is left out. Use it as slog.HandlerOptions.ReplaceAttr. It leaves values
// alone that are neither a text nor an error.
func Cut(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if text := a.Value.String(); len(text) > MaxText {
			a.Value = slog.StringValue(cut(text))
		}
	case slog.KindAny:
		if text := errorText(a.Value.Any()); len(text) > MaxText {
			a.Value = slog.StringValue(cut(text))
		}
	}
	return a
}

// errorText returns the text of an error, and an empty text for anything else. An error without a value may panic, and the handler
// deals with that.
func errorText(value any) (text string) {
	defer func() { _ = recover() }()
	if err, ok := value.(error); ok {
		return err.Error()
	}
	return ""
}

// cut returns the first MaxText bytes of text, without a part of a character, and how much is left out.
func cut(text string) string {
	kept := strings.ToValidUTF8(text[:MaxText], "")
	return fmt.Sprintf("%s ... (%d bytes left out)", kept, len(text)-len(kept))
}
