package tracing

import (
	"context"
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	api "go.opentelemetry.io/otel/trace"

	"millrace/internal/ingest/inflight"
)

// maxLinks is the maximum number of links of a span. A batch may have a million payloads, which is too many for a
// collector and for a reader. It equals the SDK's default (OTEL_SPAN_LINK_COUNT_LIMIT).
const maxLinks = 128

// link links a batch's span to the trace contexts of its payloads, each context once, up to maxLinks.
func link(span api.Span, payloads iter.Seq[inflight.Payload]) {
	type spanContext struct {
		trace api.TraceID
		span  api.SpanID
	}
	seen := map[spanContext]struct{}{}
	for p := range payloads {
		c := contextOf(p)
		if !c.IsValid() {
			continue
		}
		key := spanContext{c.TraceID(), c.SpanID()}
		if _, again := seen[key]; again {
			continue
		}
		if len(seen) == maxLinks {
			span.SetAttributes(attribute.Bool("millrace.batch.links_truncated", true))
			return
		}
		seen[key] = struct{}{}
		span.AddLink(api.Link{SpanContext: c, Attributes: []attribute.KeyValue{messageID(p)}})
	}
}

// contextOf reads a payload's trace context. The result is invalid if there is none or if it can't be parsed.
func contextOf(p inflight.Payload) api.SpanContext {
	if len(p.Header) == 0 {
		return api.SpanContext{}
	}
	return api.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier(p.Header)))
}

// carrier reads NATS headers. Their names keep the case that the publisher used: lower case as in the standard, or
// capitalized as in Go's HTTP library.
type carrier map[string][]string

var otherCase = map[string]string{"traceparent": "Traceparent", "tracestate": "Tracestate"}

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	for _, name := range [...]string{key, otherCase[key]} {
		if values := c[name]; len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier. It does nothing, because a payload keeps its publisher's context.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string { return nil }
