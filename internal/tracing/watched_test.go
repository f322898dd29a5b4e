package tracing

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
)

// fickle is an exporter that fails on demand.
type fickle struct {
	trace.SpanExporter
	fails bool
}

func (f *fickle) ExportSpans(context.Context, []trace.ReadOnlySpan) error {
	if f.fails {
		return errors.New("not now")
	}
	return nil
}

// TestEachOutageIsSaidWhenItBeginsAndWhenItIsOver checks that the start of an outage is logged, and also its end with the number
// of lost spans. Nothing is logged in between.
func TestEachOutageIsSaidWhenItBeginsAndWhenItIsOver(t *testing.T) {
	var text strings.Builder
	to := &fickle{}
	w := &watched{to: to, log: slog.New(slog.NewTextHandler(&text, nil))}
	const begins, over = "spans cannot be exported", "spans are exported again"
	for n, c := range []struct {
		fails bool
		spans int
		said  string
		lost  string
	}{
		{false, 1, "", ""}, {true, 2, begins, ""}, {true, 3, "", ""}, {false, 1, over, "dropped=5"},
		{false, 1, "", ""}, {true, 4, begins, ""}, {false, 1, over, "dropped=4"}, {false, 1, "", ""},
	} {
		text.Reset()
		to.fails = c.fails
		if err := w.ExportSpans(t.Context(), make([]trace.ReadOnlySpan, c.spans)); err != nil {
			t.Errorf("export %d: %v", n, err)
		}
		got := text.String()
		if c.said == "" && got != "" || !strings.Contains(got, c.said) || !strings.Contains(got, c.lost) {
			t.Errorf("export %d, which fails: %t, logs %q, want %q and %q", n, c.fails, got, c.said, c.lost)
		}
	}
}
