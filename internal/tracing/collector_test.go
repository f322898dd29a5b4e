package tracing_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"millrace/internal/tracing"
)

// received holds the spans that a collector has received.
type received struct {
	collector.UnimplementedTraceServiceServer
	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]string
	requests []http.Header
}

func (c *received) take(request *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		c.resource = attributes(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// Export receives spans over gRPC.
func (c *received) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.take(request)
	return &collector.ExportTraceServiceResponse{}, nil
}

// ServeHTTP receives spans over HTTP.
func (c *received) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if r.URL.Path != "/v1/traces" || err != nil || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.requests = append(c.requests, r.Header)
	c.mu.Unlock()
	c.take(&request)
}

// named returns the only span with that name.
func (c *received) named(t *testing.T, name string) *otlp.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*otlp.Span
	for _, s := range c.spans {
		if s.GetName() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans have the name %q among %d", len(found), name, len(c.spans))
	}
	return found[0]
}

// attributes converts the values to text.
func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		text := a.GetValue().String()
		_, value, _ := strings.Cut(text, ":")
		all[a.GetKey()] = strings.Trim(value, `"`)
	}
	return all
}

// overHTTP starts a collector and puts its address into the environment.
func overHTTP(t *testing.T) *received {
	t.Helper()
	c := &received{}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	return c
}

func overGRPC(t *testing.T) *received {
	t.Helper()
	c := &received{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, c)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	return c
}

type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

var names = tracing.Names{Version: "v0.0.0", Stream: "INGEST", Consumer: "millrace", ResultStream: "RESULTS"}

// epoch is the time at which the device's clock reads zero.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// open starts a Tracer for a device "host". Tracing must be enabled.
func open(t *testing.T, l *log) *tracing.Tracer {
	t.Helper()
	tr, err := tracing.Open(t.Context(), names, slog.New(slog.NewTextHandler(l, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if tr == nil {
		t.Fatal("no Tracer, but an endpoint is set")
	}
	tr.AddDevice("host", epoch)
	return tr
}

func closeTracer(t *testing.T, tr *tracing.Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := tr.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
