package tracing

import (
	"context"
	"iter"

	"millrace/internal/ingest/inflight"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	api "go.opentelemetry.io/otel/trace"
)

// maxLinks bounds the links of a span: a batch may have a million payloads, and a collector takes neither that nor does anybody
// look at it. It is what the SDK keeps by default (OTEL_SPAN_LINK_COUNT_LIMIT).
const maxLinks = 128

// link links a batch's span to the contexts of its payloads, the first of them if there are many, each context once.
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

// contextOf reads a payload's trace context; an invalid one where there is none, or none that can be read.
func contextOf(p inflight.Payload) api.SpanContext {
	if len(p.Header) == 0 {
		return api.SpanContext{}
	}
	return api.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier(p.Header)))
}

// carrier reads headers of NATS, whose names keep the case in which a publisher wrote them: as the standard does, or as Go's HTTP
// library would.
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

// Set implements propagation.TextMapCarrier. Nothing is ever set: a payload's context is its publisher's.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string { return nil }
