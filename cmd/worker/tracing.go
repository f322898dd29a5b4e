package main

import (
	"context"
	"time"

	"millrace/internal/ingest/finding"
	"millrace/internal/tracing"
)

// Limits on the time that a worker waits at its end for the collector to receive the last spans.
const (
	maxFlush = 5 * time.Second
	minFlush = time.Second // minimum, even if the drain has used up its timeout
)

// openTracing starts the export of spans if environment variables configure it. The export closes after the last batch.
func (a *app) openTracing(ctx context.Context) error {
	t, err := tracing.Open(ctx, tracing.Names{
		Version: version, Stream: a.cfg.Stream, Consumer: a.cfg.Consumer, ResultStream: a.cfg.ResultStream,
	}, a.log)
	if err != nil {
		return usageError{err}
	}
	if t == nil {
		return nil
	}
	a.tracer = t
	a.log.Info("exporting one span per batch", "to", t.String())
	a.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), a.flushTime(time.Now()))
		defer cancel()
		if err := t.Close(ctx); err != nil {
			a.log.Warn("the last spans were not exported", "error", err)
		}
		return nil
	})
	return nil
}

// flushTime returns the time for the export of the last spans. It is the rest of the drain timeout, but at least
// minFlush and at most maxFlush.
func (a *app) flushTime(now time.Time) time.Duration {
	began := a.draining.Load()
	if began == nil {
		return maxFlush
	}
	return min(max(a.cfg.DrainTimeout-now.Sub(*began), minFlush), maxFlush)
}

// checkTracing reports the destination of the worker's spans.
func checkTracing() finding.Finding {
	where, err := tracing.Wanted()
	switch {
	case err != nil:
		return finding.Finding{Level: finding.Error, What: "traces", Found: err.Error(), Advice: "correct the variable, or unset the OTEL_ variables to export no spans"}
	case where == "":
		return finding.Finding{What: "traces", Found: "OTEL_EXPORTER_OTLP_ENDPOINT is not set: no spans"}
	}
	return finding.Finding{What: "traces", Found: "the worker would export one span per batch to " + where}
}
