package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collecting is an HTTP handler that collects spans, like an OpenTelemetry collector.
type collecting struct {
	mu    sync.Mutex
	spans []*otlp.Span
}

func (c *collecting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

func publishTraced(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		m := &nats.Msg{Subject: "ingest.test", Data: []byte("payload"), Header: nats.Header{"traceparent": {fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)}}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSpansOfARun ends a worker right after its work. Each batch span must link to its payloads, and the worker must
// export the last spans before its exit.
func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	c := &collecting{}
	receiver := httptest.NewServer(c)
	t.Cleanup(receiver.Close)
	s := serve(t)
	js := client(t, s)
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json",
		"MILLRACE_HTTP_ADDR=127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.URL, "OTEL_BSP_SCHEDULE_DELAY=3600000"})
	p.await(`"msg":"working"`)
	const n = 50
	publishTraced(t, js, n)
	awaitBody(t, address(t, p, "serving metrics and health")+"metrics", fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, n))
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	linked, batches := map[string]bool{}, 0
	for _, span := range c.spans {
		if span.GetName() != "process INGEST" {
			continue
		}
		batches++
		for _, l := range span.GetLinks() {
			linked[strings.TrimLeft(hex.EncodeToString(l.GetTraceId()), "0")] = true
		}
	}
	perBatch := 5 // batch, fill, compute, publish, settle; no copies on the CPU
	if emulateGPU {
		perBatch += 2
	}
	if len(linked) != n || len(c.spans) != perBatch*batches {
		t.Errorf("links to %d payloads in %d spans of %d batches, want links to %d and %d spans per batch", len(linked), len(c.spans), batches, n, perBatch)
	}
}

// TestWithoutACollector checks that the worker works without its collector and logs the failure once.
func TestWithoutACollector(t *testing.T) {
	t.Parallel()
	s := serve(t)
	js := client(t, s)
	endpoint := "http://" + freeAddr()
	p := start(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_LOG_FORMAT=json",
		"MILLRACE_HTTP_ADDR=127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_BSP_SCHEDULE_DELAY=1",
		"OTEL_EXPORTER_OTLP_TIMEOUT=50"}) // milliseconds
	p.await(`"msg":"working"`)
	const n = 300
	publishTraced(t, js, n)
	awaitBody(t, address(t, p, "serving metrics and health")+"metrics", fmt.Sprintf(`millrace_messages_total{outcome="published"} %d`, n))
	p.await("spans cannot be exported")
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	if lines := strings.Count(p.text(), "spans cannot be exported"); lines != 1 || strings.Count(p.text(), endpoint) > 2 {
		t.Errorf("logged %d times, want once", lines)
	}
	if got := streamMessages(t, js, "RESULTS"); got != n {
		t.Errorf("%d results, want %d", got, n)
	}
}

func TestBadTracingSettings(t *testing.T) {
	t.Parallel()
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}
	call(t, env).want(t, exitUsage, "OTEL_EXPORTER_OTLP_ENDPOINT is no address of a collector")
	call(t, env, "check").want(t, exitFailed, "error    traces")
	call(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "check").
		want(t, exitDone, "ok       traces: the worker would export one span per batch to http://collector:4317 (grpc)")
}
