package tracing_test

import (
	"log/slog"
	"testing"

	"millrace/internal/tracing"
)

// BenchmarkBatchEnded measures the cost of a batch of 8192 payloads for the goroutine that settles it. The payloads
// have a trace context in one case and no headers in the other. There is no collector, so spans are dropped when the
// queue is full.
func BenchmarkBatchEnded(b *testing.B) {
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for name, header := range map[string]func(i int) map[string][]string{
		"contexts":   func(i int) map[string][]string { return map[string][]string{"traceparent": {parent(i+1, i+1)}} },
		"no headers": func(int) map[string][]string { return nil },
	} {
		b.Run(name, func(b *testing.B) {
			tr, err := tracing.Open(b.Context(), names, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			tr.AddDevice("host", epoch)
			headers := make([]map[string][]string, 8192)
			for i := range headers {
				headers[i] = header(i)
			}
			payloads := traced(headers...)
			for b.Loop() {
				tr.BatchEnded(batch(), payloads)
			}
			_ = tr.Close(b.Context()) // no collector receives the spans
		})
	}
}
