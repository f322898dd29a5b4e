package tracing

import (
	"context"
	"iter"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	api "go.opentelemetry.io/otel/trace"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

var _ inflight.BatchObserver = (*Tracer)(nil)

// BatchEnded implements inflight.BatchObserver. It creates a span for the batch and a child span for each stage, with
// their times.
func (t *Tracer) BatchEnded(r *inflight.Record, payloads iter.Seq[inflight.Payload]) {
	t.mu.RLock()
	clock, known := t.devices[r.Device]
	t.mu.RUnlock()
	whole := r.Extent()
	if !known || whole == (streams.Span{}) {
		return
	}
	ctx, span := t.tracer.Start(context.Background(), "process "+t.names.Stream,
		api.WithNewRoot(), api.WithSpanKind(api.SpanKindConsumer), api.WithTimestamp(clock.epoch.Add(whole.Start)), api.WithAttributes(
			semconv.MessagingSystemKey.String("nats"),
			semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"),
			semconv.MessagingDestinationName(t.names.Stream), semconv.MessagingConsumerGroupName(t.names.Consumer),
			semconv.MessagingBatchMessageCount(r.Messages),
		))
	if span.IsRecording() { // the sampler selected the span
		link(span, payloads)
		span.SetAttributes(clock.id,
			attribute.Int64("millrace.batch.number", int64(r.Batch)), attribute.Int("millrace.batch.records", r.Payloads), attribute.Int("millrace.batch.bytes", r.Bytes),
			attribute.Int("millrace.batch.result_bytes", r.ResultBytes), attribute.String("millrace.batch.close_reason", r.Closed.String()),
			attribute.Int("millrace.lane", r.Lane), attribute.Bool("millrace.batch.in_place", r.InPlace))
		if r.Err != nil {
			span.SetStatus(codes.Error, r.Err.Error())
		}
		for stage, at := range r.Spans() {
			if at != (streams.Span{}) {
				t.stage(ctx, inflight.Stage(stage), clock.epoch, at, r.Ended)
			}
		}
	}
	span.End(api.WithTimestamp(clock.epoch.Add(whole.End)))
}

// stage creates the span of one stage. Stages that call the server follow the semantic conventions for messaging.
func (t *Tracer) stage(ctx context.Context, stage inflight.Stage, epoch time.Time, at streams.Span, messages int) {
	name, kind := stage.String(), api.SpanKindInternal
	var attributes []attribute.KeyValue
	message := func(operation attribute.KeyValue, stream string) {
		name, kind = name+" "+stream, api.SpanKindClient
		attributes = []attribute.KeyValue{
			semconv.MessagingSystemKey.String("nats"), operation, semconv.MessagingOperationName(stage.String()),
			semconv.MessagingDestinationName(stream), semconv.MessagingBatchMessageCount(messages),
		}
	}
	switch stage {
	case inflight.Publish:
		message(semconv.MessagingOperationTypeSend, t.names.ResultStream)
	case inflight.Settle:
		message(semconv.MessagingOperationTypeSettle, t.names.Stream)
	}
	_, span := t.tracer.Start(ctx, name, api.WithSpanKind(kind), api.WithTimestamp(epoch.Add(at.Start)), api.WithAttributes(attributes...))
	span.End(api.WithTimestamp(epoch.Add(at.End)))
}

// messageID identifies a payload by its stream and sequence, like the first part of the result's Nats-Msg-Id.
func messageID(p inflight.Payload) attribute.KeyValue {
	return semconv.MessagingMessageID(p.Stream + ":" + strconv.FormatUint(p.Sequence, 10))
}

// maxLinks is the maximum number of links of a span. A batch may have a million payloads, which are too many for a collector and
// for a user. The value equals the SDK's default (OTEL_SPAN_LINK_COUNT_LIMIT).
const maxLinks = 128

// link links a batch's span to the trace contexts of its payloads. It adds each context once, and at most maxLinks
// contexts.
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

// contextOf returns a payload's trace context. The result is invalid if the payload has no context or if the context
// can't be parsed.
func contextOf(p inflight.Payload) api.SpanContext {
	if len(p.Header) == 0 {
		return api.SpanContext{}
	}
	return api.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier(p.Header)))
}

// carrier reads NATS headers. A header's name has the case that the publisher used: lower case as in the standard, or
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
