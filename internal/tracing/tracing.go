// Package tracing exports a span for each batch over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. The span is linked to the trace contexts of the batch's payloads
// (traceparent, W3C Trace Context).
//
// A batch has one parent per payload, but a span can have only one parent. Each batch therefore starts a new trace with links to
// the traces of its payloads. Results carry the unchanged trace context of their payloads (see internal/ingest).
//
// The worker opens a Tracer and passes it to internal/ingest as an observer. Start reading with this file, then
// batch.go.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// Open starts the export of spans if the environment enables tracing. Otherwise it returns a nil Tracer and no error.
func Open(ctx context.Context, names Names, log *slog.Logger) (*Tracer, error) {
	c, on, err := read()
	if err != nil || !on {
		return nil, err
	}
	// Messages of the SDK, for example about a queue or a limit, don't matter to the worker. The SDK's log would also
	// print variables that it can't parse, including credentials.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Debug("OpenTelemetry", "error", err) }))
	exporter, err := c.exporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("exporting spans to %s: %w", c.endpoint, err)
	}
	t, err := newTracer(ctx, names, trace.NewBatchSpanProcessor(&watched{to: exporter, log: log, endpoint: c.endpoint}))
	if err != nil {
		return nil, err
	}
	t.endpoint, t.protocol = c.endpoint, c.protocol
	return t, nil
}

// Wanted returns the endpoint and the protocol for spans according to the environment, or "" if tracing is disabled.
func Wanted() (where string, err error) {
	c, on, err := read()
	if err != nil || !on {
		return "", err
	}
	return c.endpoint + " (" + c.protocol + ")", nil
}

// exporter creates an exporter. It doesn't contact the collector.
func (c config) exporter(ctx context.Context) (trace.SpanExporter, error) {
	if c.protocol == "grpc" {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

func newTracer(ctx context.Context, names Names, processor trace.SpanProcessor) (*Tracer, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("millrace"), semconv.ServiceVersion(names.Version)),
		resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the attributes above
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

// String returns the endpoint and the protocol.
func (t *Tracer) String() string { return t.endpoint + " (" + t.protocol + ")" }

// AddDevice sets the wall-clock time at which the clock of the device with this id read zero. Batches of devices that
// were not added get no span.
func (t *Tracer) AddDevice(id string, epoch time.Time) {
	t.mu.Lock()
	t.devices[id] = deviceClock{epoch: epoch, id: attribute.String("millrace.device.id", id)}
	t.mu.Unlock()
}

// Close exports the remaining spans until ctx is done. Spans that are not exported by then are lost.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// config holds the trace configuration from the standard OpenTelemetry variables. The SDK and the exporters read
// further variables themselves, such as the headers, certificates, sampling and the queue size.
type config struct {
	endpoint string // address of the collector, as configured
	protocol string
}

// protocols are the values of OTEL_EXPORTER_OTLP_PROTOCOL. The first is the default.
var protocols = []string{"http/protobuf", "http/json", "grpc"}

// read reads the settings from the environment. on is false if tracing is disabled. The error for an invalid variable
// includes advice.
func read() (c config, on bool, err error) {
	variable, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return config{}, false, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return config{}, false, nil
	default:
		return config{}, false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: set otlp or none", exporter)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return config{}, false, fmt.Errorf("%s is no address of a collector: set http:// or https:// with host and port, like http://collector:4318", variable)
	case u.RawQuery != "":
		return config{}, false, fmt.Errorf("%s has a query, which may hold a token: put that into OTEL_EXPORTER_OTLP_HEADERS", variable)
	case u.User != nil:
		return config{}, false, fmt.Errorf("%s holds a user or a token: put it into OTEL_EXPORTER_OTLP_HEADERS", variable)
	}
	if err := checkHeaders(); err != nil {
		return config{}, false, err
	}
	c = config{endpoint: endpoint, protocol: protocols[0]}
	if variable, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" {
		if c.protocol = protocol; !slices.Contains(protocols, protocol) {
			return config{}, false, fmt.Errorf("%s is %q: set %s", variable, protocol, strings.Join(protocols, " or "))
		}
	}
	return c, true, nil
}

// first returns the first of the given variables that is set to a non-empty value.
func first(variables ...string) (variable, value string) {
	for _, variable := range variables {
		if value := os.Getenv(variable); value != "" {
			return variable, value
		}
	}
	return "", ""
}

// checkHeaders returns an error if a header can't be parsed, because the exporter would omit that header. The error
// doesn't quote the headers, because they contain credentials.
func checkHeaders() error {
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		for i, header := range strings.Split(value, ",") {
			name, text, ok := strings.Cut(header, "=")
			_, badName := url.PathUnescape(name)
			_, badText := url.PathUnescape(text)
			if !ok || strings.TrimSpace(name) == "" || badName != nil || badText != nil {
				return fmt.Errorf("%s: header %d cannot be read: set name=value pairs, comma separated, with %%2C for a comma, %%20 for a space and %%25 for %%", variable, i+1)
			}
		}
	}
	return nil
}

// watched is an exporter that logs the first failure and the next success. Spans are lost in between, but nothing else
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

// plain removes the address from a client's error, because the log line already contains the endpoint.
func plain(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
