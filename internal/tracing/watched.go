package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/trace"
)

// watched is an exporter that logs when failures begin and when they end. Spans are lost in between, and nothing else
// is affected.
type watched struct {
	to       trace.SpanExporter
	log      *slog.Logger
	endpoint string
	failing  atomic.Bool
	lost     atomic.Int64 // number of spans lost since the failures began
}

// ExportSpans implements trace.SpanExporter. It always returns nil, because the caller would log every error.
func (w *watched) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := w.to.ExportSpans(ctx, spans)
	if err != nil {
		w.lost.Add(int64(len(spans)))
		if !w.failing.Swap(true) {
			w.log.Warn("spans cannot be exported and are dropped; the work goes on", "endpoint", w.endpoint, "error", plain(err),
				"advice", "check that a collector listens at the endpoint and accepts OTEL_EXPORTER_OTLP_PROTOCOL, or unset OTEL_EXPORTER_OTLP_ENDPOINT to disable tracing")
		}
		return nil
	}
	if w.failing.Swap(false) {
		w.log.Info("spans are exported again", "endpoint", w.endpoint, "dropped", w.lost.Swap(0))
	}
	return nil
}

// Shutdown implements trace.SpanExporter.
func (w *watched) Shutdown(ctx context.Context) error { return w.to.Shutdown(ctx) }

// plain removes the address from a client's error, because the log line already contains it.
func plain(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
