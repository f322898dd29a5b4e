// Package tracing exports a span for each batch over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set. The span is linked to
// the trace contexts of the batch's payloads (traceparent, W3C Trace Context). Otherwise there is no Tracer, and no
// exporter is created or started.
//
// A batch has many parents, one for each payload, but a span can only have one. So each batch begins its own trace,
// with links to the traces of its payloads. The payloads' own context is copied to their results unchanged (see
// internal/ingest).
//
// The worker opens a Tracer and passes it to internal/ingest as an observer. Start reading with this file, then
// batch.go.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	api "go.opentelemetry.io/otel/trace"
)

// Names holds the names of this program, its streams and its consumer, for the attributes of spans.
type Names struct {
	Version      string // version of this program
	Stream       string // input stream
	Consumer     string
	ResultStream string
}

// Tracer creates spans for batches and exports them. Its methods are safe for concurrent use and never wait for the
// collector.
type Tracer struct {
	names    Names
	endpoint string
	protocol string
	provider *trace.TracerProvider
	tracer   api.Tracer

	mu      sync.RWMutex
	devices map[string]deviceClock
}

// deviceClock converts a device's times to wall-clock times.
type deviceClock struct {
	epoch time.Time
	id    attribute.KeyValue
}

// Open starts the export of spans if the environment enables it. Otherwise it returns a nil Tracer and no error.
func Open(ctx context.Context, names Names, log *slog.Logger) (*Tracer, error) {
	s, on, err := read()
	if err != nil || !on {
		return nil, err
	}
	// The SDK's own messages, for example about a queue or a limit, don't matter to the worker. Its log would also
	// print variables that it can't parse, including credentials.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debug("OpenTelemetry", "error", err) }))
	exporter, err := s.exporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("exporting spans to %s: %w", s.endpoint, err)
	}
	t, err := newTracer(ctx, names, trace.NewBatchSpanProcessor(&watched{to: exporter, log: log, endpoint: s.endpoint}))
	if err != nil {
		return nil, err
	}
	t.endpoint, t.protocol = s.endpoint, s.protocol
	return t, nil
}

// Wanted returns where spans would be sent according to the environment; empty if traces are disabled.
func Wanted() (where string, err error) {
	s, on, err := read()
	if err != nil || !on {
		return "", err
	}
	return s.endpoint + " (" + s.protocol + ")", nil
}

// exporter creates an exporter without contacting the collector.
func (s settings) exporter(ctx context.Context) (trace.SpanExporter, error) {
	if s.protocol == "grpc" {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func newTracer(ctx context.Context, names Names, processor trace.SpanProcessor) (*Tracer, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("millrace"), semconv.ServiceVersion(names.Version)),
		resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the others
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w: set key=value pairs, comma separated", err)
	}
	provider := trace.NewTracerProvider(trace.WithResource(about), trace.WithSpanProcessor(processor))
	return &Tracer{
		names: names, provider: provider, devices: map[string]deviceClock{},
		tracer: provider.Tracer("millrace", api.WithInstrumentationVersion(names.Version), api.WithSchemaURL(semconv.SchemaURL)),
	}, nil
}

// String returns where spans are sent.
func (t *Tracer) String() string { return t.endpoint + " (" + t.protocol + ")" }

// AddDevice sets the wall-clock time at which a device's clock read zero. Batches of other devices get no span.
func (t *Tracer) AddDevice(id string, epoch time.Time) {
	t.mu.Lock()
	t.devices[id] = deviceClock{epoch: epoch, id: attribute.String("millrace.device.id", id)}
	t.mu.Unlock()
}

// Close exports the remaining spans until ctx is done. Spans that have not been exported by then are lost.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
