// Package tracing exports a span for each batch over OTLP, linked to the contexts that its payloads came with
// (traceparent, W3C Trace Context), when OTEL_EXPORTER_OTLP_ENDPOINT is set. Otherwise there is no Tracer, and nothing is
// made or started.
//
// A batch has many parents, one for each payload, and a span has one: so the batch begins a trace of its own, and links lead to the
// traces of its payloads. The payloads' own context passes to their results untouched (see internal/ingest).
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

// Names are what spans say of where payloads come from and where results go.
type Names struct {
	Version      string // of this program
	Stream       string // of the input
	Consumer     string
	ResultStream string
}

// Tracer makes spans of batches and exports them. Its methods may be called from several goroutines; they never wait for
// the collector.
type Tracer struct {
	names    Names
	endpoint string
	protocol string
	provider *trace.TracerProvider
	tracer   api.Tracer

	mu      sync.RWMutex
	devices map[string]deviceClock
}

// deviceClock tells a device's times by the calendar.
type deviceClock struct {
	epoch time.Time
	id    attribute.KeyValue
}

// Open starts the export of spans if the environment asks for it. Otherwise the Tracer is nil, with no error.
func Open(ctx context.Context, names Names, log *slog.Logger) (*Tracer, error) {
	s, on, err := read()
	if err != nil || !on {
		return nil, err
	}
	// What the SDK itself has to say, of a queue or a limit, is no trouble of the worker's; and its own log would print what it cannot
	// read of the variables, a login among them.
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

// Wanted says where spans would go, as the environment has it; empty for nowhere.
func Wanted() (where string, err error) {
	s, on, err := read()
	if err != nil || !on {
		return "", err
	}
	return s.endpoint + " (" + s.protocol + ")", nil
}

// exporter is made without a word to the collector.
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
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word
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

// String says where spans go.
func (t *Tracer) String() string { return t.endpoint + " (" + t.protocol + ")" }

// AddDevice tells when a device's clock stood at zero. A batch of a device that was not added makes no span.
func (t *Tracer) AddDevice(id string, epoch time.Time) {
	t.mu.Lock()
	t.devices[id] = deviceClock{epoch: epoch, id: attribute.String("millrace.device.id", id)}
	t.mu.Unlock()
}

// Close exports what is left, for as long as ctx lets it. What is not exported by then is lost.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }
