package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/trace"
)

// watched is an exporter whose failures are said once, when they begin, and again when they are over: spans are lost
// meanwhile, and nothing else.
type watched struct {
	to       trace.SpanExporter
	log      *slog.Logger
	endpoint string
	failing  atomic.Bool
	lost     atomic.Int64 // spans, since it fails
}

// ExportSpans implements trace.SpanExporter. It never fails, since whoever calls it would say so each time.
func (w *watched) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	err := w.to.ExportSpans(ctx, spans)
	if err != nil {
		w.lost.Add(int64(len(spans)))
		if !w.failing.Swap(true) {
			w.log.Warn("spans cannot be exported and are dropped; the work goes on", "endpoint", w.endpoint, "error", plain(err),
				"advice", "is a collector there, and does it take OTEL_EXPORTER_OTLP_PROTOCOL? Unset OTEL_EXPORTER_OTLP_ENDPOINT to have none")
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

// plain leaves the address out of a client's error: it stands beside it already.
func plain(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
