package tracing_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
	"millrace/internal/tracing"
)

// batch returns the record of a batch. Its stages start at one second, follow each other, and take a millisecond each.
func batch() *inflight.Record {
	r := &inflight.Record{Record: streams.Record{
		Device: "host", Batch: 7, Lane: 1, Payloads: 300, Bytes: 1000, ResultBytes: 24, Closed: streams.ClosedByLinger,
	}, Messages: 3, Ended: 2}
	at := time.Second
	next := func() streams.Span {
		at += time.Millisecond
		return streams.Span{Start: at - time.Millisecond, End: at}
	}
	for stage := range r.Stages {
		r.Stages[stage] = next()
	}
	r.Publish, r.Settle = next(), next()
	return r
}

// traced returns payloads with the given headers.
func traced(headers ...map[string][]string) iter.Seq[inflight.Payload] {
	return func(yield func(inflight.Payload) bool) {
		for i, h := range headers {
			if !yield(inflight.Payload{Stream: "INGEST", Sequence: uint64(i + 1), Header: h}) {
				return
			}
		}
	}
}

// parent returns a traceparent header with the given trace and span numbers.
func parent(trace, span int) string { return fmt.Sprintf("00-%032x-%016x-01", trace, span) }

func TestABatchBecomesASpanWithItsLinks(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *received{"HTTP": overHTTP, "gRPC": overGRPC} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			tr := open(t, &log{})
			tr.BatchEnded(batch(), traced(
				map[string][]string{"traceparent": {parent(1, 1)}},
				nil,
				map[string][]string{"Traceparent": {parent(2, 2)}},
				map[string][]string{"traceparent": {parent(1, 1)}}, // the same span as the first payload
				map[string][]string{"traceparent": {"nothing of the kind"}},
				map[string][]string{"traceparent": {parent(1, 3)}},
			))
			closeTracer(t, tr)
			root := c.named(t, "process INGEST")
			wantSpan(t, root, epoch.Add(time.Second), 6*time.Millisecond, otlp.Span_SPAN_KIND_CONSUMER)
			wantLinks(t, root)
			wantAttributes(t, root)
			for _, stage := range []string{"publish RESULTS", "settle INGEST"} {
				if got := attributes(c.named(t, stage).GetAttributes())["messaging.batch.message_count"]; got != "2" {
					t.Errorf("%s is of %q messages, want the 2 that end in the batch", stage, got)
				}
			}
			for i, stage := range []string{"fill", "copy_in", "compute", "copy_out", "publish RESULTS", "settle INGEST"} {
				kind := otlp.Span_SPAN_KIND_INTERNAL
				if i >= 4 {
					kind = otlp.Span_SPAN_KIND_CLIENT
				}
				s := c.named(t, stage)
				wantSpan(t, s, epoch.Add(time.Second+time.Duration(i)*time.Millisecond), time.Millisecond, kind)
				if !slices.Equal(s.GetParentSpanId(), root.GetSpanId()) || !slices.Equal(s.GetTraceId(), root.GetTraceId()) {
					t.Errorf("%s isn't a child of the batch's span", stage)
				}
			}
			if len(c.spans) != 7 {
				t.Errorf("%d spans, want the batch's and one for each of 6 stages", len(c.spans))
			}
			if got := c.resource; got["service.name"] != "millrace" || got["service.version"] != "v0.0.0" || got["host.name"] == "" {
				t.Errorf("the resource is %v", got)
			}
		})
	}
}

func wantSpan(t *testing.T, s *otlp.Span, start time.Time, length time.Duration, kind otlp.Span_SpanKind) {
	t.Helper()
	from := time.Unix(0, int64(s.GetStartTimeUnixNano())).UTC()
	if got := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()); !from.Equal(start) || got != length || s.GetKind() != kind {
		t.Errorf("%s: %v for %v, %v; want %v for %v, %v", s.GetName(), from, got, s.GetKind(), start, length, kind)
	}
}

func wantLinks(t *testing.T, root *otlp.Span) {
	t.Helper()
	var got []string
	for _, l := range root.GetLinks() {
		got = append(got, strings.TrimLeft(hex.EncodeToString(l.GetTraceId()), "0")+" "+
			strings.TrimLeft(hex.EncodeToString(l.GetSpanId()), "0")+" "+attributes(l.GetAttributes())["messaging.message.id"])
	}
	if want := []string{"1 1 INGEST:1", "2 2 INGEST:3", "1 3 INGEST:6"}; !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
	if len(root.GetParentSpanId()) != 0 {
		t.Error("the batch's span has a parent, and it has many")
	}
}

func wantAttributes(t *testing.T, root *otlp.Span) {
	t.Helper()
	got := attributes(root.GetAttributes())
	for key, want := range map[string]string{
		"messaging.system": "nats", "messaging.operation.type": "process", "messaging.operation.name": "process",
		"messaging.destination.name": "INGEST", "messaging.consumer.group.name": "millrace", "messaging.batch.message_count": "3",
		"millrace.device.id": "host", "millrace.batch.number": "7", "millrace.batch.records": "300", "millrace.batch.bytes": "1000", "millrace.batch.result_bytes": "24",
		"millrace.batch.close_reason": "linger", "millrace.lane": "1", "millrace.batch.in_place": "false",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

func TestLinksAreBounded(t *testing.T) {
	c := overHTTP(t)
	tr := open(t, &log{})
	read := 0
	tr.BatchEnded(batch(), func(yield func(inflight.Payload) bool) {
		for i := range 1_000_000 {
			read++
			if !yield(inflight.Payload{Header: map[string][]string{"traceparent": {parent(i+1, i+1)}}}) {
				return
			}
		}
	})
	closeTracer(t, tr)
	root := c.named(t, "process INGEST")
	if len(root.GetLinks()) != 128 || read != 129 || attributes(root.GetAttributes())["millrace.batch.links_truncated"] != "true" {
		t.Errorf("%d links after reading %d payloads, want 128 after 129: %v", len(root.GetLinks()), read, root.GetAttributes())
	}
}

func TestABatchThatFailed(t *testing.T) {
	c := overHTTP(t)
	tr := open(t, &log{})
	r := batch()
	r.Err = errors.New("the operator could not")
	for stage := streams.Compute; stage < streams.NumStages; stage++ {
		r.Stages[stage] = streams.Span{}
	}
	r.Publish, r.Settle = streams.Span{}, streams.Span{}
	tr.BatchEnded(r, traced())
	tr.BatchEnded(&inflight.Record{Record: streams.Record{Device: "host"}}, traced())    // no stage ran
	tr.BatchEnded(&inflight.Record{Record: streams.Record{Device: "unknown"}}, traced()) // the device's clock is unknown
	closeTracer(t, tr)
	root := c.named(t, "process INGEST")
	wantSpan(t, root, epoch.Add(time.Second), 2*time.Millisecond, otlp.Span_SPAN_KIND_CONSUMER)
	if s := root.GetStatus(); s.GetCode() != otlp.Status_STATUS_CODE_ERROR || s.GetMessage() != "the operator could not" {
		t.Errorf("status %v", s)
	}
	if len(c.spans) != 3 {
		t.Errorf("%d spans, want the batch's and one for each of its two stages", len(c.spans))
	}
}

// TestStandardVariables: variables that only the OpenTelemetry SDK reads also have an effect.
func TestStandardVariables(t *testing.T) {
	c := overHTTP(t)
	t.Setenv("OTEL_SERVICE_NAME", "mill")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=mill-1")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20planted")
	tr := open(t, &log{})
	tr.BatchEnded(batch(), traced())
	closeTracer(t, tr)
	if c.resource["service.name"] != "mill" || c.resource["k8s.pod.name"] != "mill-1" || c.requests[0].Get("Authorization") != "Bearer planted" {
		t.Errorf("resource %v, headers %v", c.resource, c.requests)
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tr = open(t, &log{})
	tr.BatchEnded(batch(), func(func(inflight.Payload) bool) { t.Error("payloads of a batch that isn't sampled are read") })
	closeTracer(t, tr)
	if len(c.requests) != 1 {
		t.Errorf("%d requests, but nothing was sampled after the first", len(c.requests))
	}
}

// TestOffIsFree: without an endpoint, there is no Tracer and nothing is allocated or started.
func TestOffIsFree(t *testing.T) {
	silent := slog.New(slog.DiscardHandler)
	awaitRunning(t, false) // waits for goroutines of an earlier test to end
	for _, env := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
	} {
		t.Run(fmt.Sprint(env), func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}
			allocations := testing.AllocsPerRun(100, func() {
				if tr, err := tracing.Open(t.Context(), names, silent); tr != nil || err != nil {
					t.Fatalf("%v, %v", tr, err)
				}
			})
			if allocations != 0 {
				t.Errorf("%v allocations to detect that tracing is disabled", allocations)
			}
			if running(t) {
				t.Error("goroutines of OpenTelemetry are running")
			}
		})
	}
	overHTTP(t)
	tr := open(t, &log{})
	awaitRunning(t, true) // otherwise the check above could never fail
	closeTracer(t, tr)
}

// awaitRunning waits until an OpenTelemetry goroutine exists, or until none exists if want is false. A goroutine that
// has just started can't be identified yet.
func awaitRunning(t *testing.T, want bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for running(t) != want {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("goroutines of OpenTelemetry: still %v", !want)
		}
	}
}

func running(t *testing.T) bool {
	t.Helper()
	var text strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(text.String(), "go.opentelemetry.io/otel/sdk")
}

func TestBadSettingsSayWhatToSet(t *testing.T) {
	for _, c := range []struct{ variable, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT is no address of a collector: set http://"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no address"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:planted@collector", "put it into OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/?token=planted", "put that into OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "Bearer planted", "header 1 cannot be read"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=b,authorization=Basic pl%anted", "header 2 cannot be read"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=x,planted", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: header 2"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "udp", `OTEL_EXPORTER_OTLP_PROTOCOL is "udp": set http/protobuf or http/json or grpc`},
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER is "zipkin": set otlp or none`},
	} {
		t.Run(c.variable+"="+c.value, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
			t.Setenv(c.variable, c.value)
			_, err := tracing.Open(t.Context(), names, slog.New(slog.DiscardHandler))
			_, wanted := tracing.Wanted()
			for _, err := range []error{err, wanted} {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "planted") {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
		})
	}
}

// TestACollectorThatHangs: the collector never responds. Batches continue, even if they exceed the queue, and Close
// returns when its context ends.
func TestACollectorThatHangs(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	tr := open(t, &log{})
	for range 1000 { // 7000 spans, and the queue holds 2048
		tr.BatchEnded(batch(), traced(map[string][]string{"traceparent": {parent(1, 1)}}))
	}
	<-asked
	for range 1000 {
		tr.BatchEnded(batch(), traced())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tr.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v, want that it was cut off", err)
	}
}

// TestACollectorThatRefuses: the failure is logged once, and so is its end.
func TestACollectorThatRefuses(t *testing.T) {
	c := &received{}
	refusals := make(chan struct{}, 3)
	for range cap(refusals) {
		refusals <- struct{}{}
	}
	seen := make(chan bool, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-refusals:
			http.Error(w, "not now", http.StatusForbidden)
			seen <- false
		default:
			c.ServeHTTP(w, r)
			seen <- true
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1") // milliseconds
	l := &log{}
	tr := open(t, l)
	for taken := false; !taken; {
		tr.BatchEnded(batch(), traced())
		taken = <-seen
	}
	closeTracer(t, tr)
	if failed, again := l.count("spans cannot be exported"), l.count("spans are exported again"); failed != 1 || again != 1 {
		t.Errorf("logged the failure %d times and its end %d times, want once each:\n%s", failed, again, l.text.String())
	}
	if l.count("403") == 0 || l.count(s.URL) == 0 {
		t.Errorf("the log lacks the endpoint or the reason:\n%s", l.text.String())
	}
}
