package main

import (
	"context"
	"time"

	"millrace/internal/ingest/finding"
	"millrace/internal/tracing"
)

// Bounds on how long the last spans may take to reach the collector when the worker ends.
const (
	mostFlush  = 5 * time.Second
	leastFlush = time.Second // also where the drain has used up its time
)

// openTracing starts the export of spans if the environment asks for it. It closes last, after the last batch.
func (p *plant) openTracing(ctx context.Context) error {
	t, err := tracing.Open(ctx, tracing.Names{
		Version: version, Stream: p.cfg.Stream, Consumer: p.cfg.Consumer, ResultStream: p.cfg.ResultStream,
	}, p.log)
	if err != nil {
		return usageError{err}
	}
	if t == nil {
		return nil
	}
	p.tracer = t
	p.log.Info("exporting a span a batch", "to", t.String())
	p.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), p.flushTime(time.Now()))
		defer cancel()
		if err := t.Close(ctx); err != nil {
			p.log.Warn("the last spans were not exported", "error", err)
		}
		return nil
	})
	return nil
}

// flushTime is what the drain has left for the last spans.
func (p *plant) flushTime(now time.Time) time.Duration {
	began := p.draining.Load()
	if began == nil {
		return mostFlush
	}
	return min(max(p.cfg.DrainTimeout-now.Sub(*began), leastFlush), mostFlush)
}

// checkTracing says where spans would go.
func checkTracing() finding.Finding {
	where, err := tracing.Wanted()
	switch {
	case err != nil:
		return finding.Finding{Level: finding.Error, What: "traces", Found: err.Error(), Advice: "or unset the OTEL_ variables to have none"}
	case where == "":
		return finding.Finding{What: "traces", Found: "OTEL_EXPORTER_OTLP_ENDPOINT is not set: no spans"}
	}
	return finding.Finding{What: "traces", Found: "a span a batch would go to " + where}
}
