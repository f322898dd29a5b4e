package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/bench"
	"millrace/internal/bench/broker"
	benchreport "millrace/internal/bench/report"
	"millrace/internal/ingest/embedded"
)

func TestBenchListsEveryRow(t *testing.T) {
	r := call(t, nil, "bench", "--list")
	nats := broker.New(broker.Options{}).Suite()
	r.want(t, exitDone)
	if got, want := strings.Count(r.out, "\n"), len(bench.List(nats))+1; got != want {
		t.Errorf("%d lines, want a heading and one line per row: %d", got, want)
	}
	for _, e := range bench.List(nats) {
		if !strings.Contains(r.out, e.Group) || !strings.Contains(r.out, e.Name) || !strings.Contains(r.out, e.Shows) {
			t.Errorf("the list lacks %s/%s", e.Group, e.Name)
		}
	}
}

func TestBenchMeasuresAndWritesItsFiles(t *testing.T) {
	dir := t.TempDir()
	figures, trace := filepath.Join(dir, "figures.json"), filepath.Join(dir, "trace.json")
	profile := filepath.Join(dir, "cpu.pprof")
	r := call(t, []string{"MILLRACE_LANES=3"}, "bench", "schedules", "--bytes", "16KiB", "--seconds=0.01", "latency",
		"--rounds", "2", "--row", "triple,latency/streams", "--seed", "3", "--json", figures, "--trace", trace,
		"--cpuprofile", profile)
	r.want(t, exitDone, "NO GPU: THESE ARE THE CPU'S FIGURES", "device host", "seed 3", "us/batch", "p99 us", "x own serial",
		"speedups are over our own serial schedule, not over plain CUDA",
		"make -C kernels yardstick")
	document, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	var got benchreport.Report
	if err := json.Unmarshal(document, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 3 || got.Rows[0].Name != "triple" || got.Rows[0].Lanes != 3 || got.Rows[0].Batch == nil {
		t.Errorf("the rows are %+v", got.Rows)
	}
	if !strings.HasPrefix(got.Command, "worker bench schedules --bytes 16KiB") || got.Devices[0].ID != "host" || got.Commit == "" {
		t.Errorf("the report is of %q on %+v, commit %q", got.Command, got.Devices, got.Commit)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		TraceEvents []struct{ Name string } `json:"traceEvents"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil || !strings.Contains(string(text), "schedules/triple") {
		t.Errorf("the trace has %d events, error %v", len(parsed.TraceEvents), err)
	}
	// A profile is a gzipped message. The file is empty until the profiler stops.
	if packed, err := os.ReadFile(profile); err != nil || !bytes.HasPrefix(packed, []byte("\x1f\x8b")) {
		t.Errorf("%s has %d bytes that do not start like gzip, error %v", profile, len(packed), err)
	}
}

// TestBenchGoesFromStreamToStream runs the group nats with the bench's own server and with a running server.
func TestBenchGoesFromStreamToStream(t *testing.T) {
	t.Parallel()
	short := []string{"bench", "nats", "--bytes", "64", "--seconds=0.002", "--rounds", "1", "--storage", "memory", "--row", "millrace-shared"}
	r := call(t, []string{"MILLRACE_LANES=3"}, short...)
	r.want(t, exitDone, "records/s (p10-p90)", "millrace-shared", "crc32c,minhash", "The server runs in its own process")
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	call(t, nil, append(short, "--server", server.URL())...).want(t, exitDone, "The server runs elsewhere")
	call(t, nil, append(short, "--server", "nats://127.0.0.1:1")...).want(t, exitFailed, "cannot connect to NATS at nats://127.0.0.1:1")
}

func TestBenchRefusesWrongArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"schedule"}, []string{`no group "schedule"`, "known are copy, schedules, streams, alloc, completion, operators, latency, nats"}},
		{[]string{"--row", "tripel"}, []string{`no row "tripel"`, "schedules/triple"}},
		{[]string{"--bytes", "1.5MiB", "--rounds", "0", "--seconds", "-1"}, []string{`--bytes has "1.5MiB"`, "--rounds is 0", "--seconds is -1"}},
		{[]string{"--bytes", "1", "--lanes", "1000"}, []string{"a batch of 1 bytes", "--lanes is 1000"}},
		{[]string{"nats", "--bytes", "8MiB", "--storage", "tape"}, []string{"a payload of 8388608 bytes", `--storage is "tape"`}},
		{[]string{"copy", "--fast"}, []string{"unknown flag", "worker bench -h"}},
	} {
		call(t, nil, append([]string{"bench"}, c.args...)...).want(t, exitUsage, c.want...)
	}
}

func TestBenchFailsIfItCannotWriteOrCompare(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "no", "such", "folder", "f")
	call(t, nil, "bench", "copy", "--json", nowhere).want(t, exitFailed, "--json")
	call(t, nil, "bench", "copy", "--trace", nowhere).want(t, exitFailed, "--trace")
	call(t, nil, "bench", "copy", "--cpuprofile", nowhere).want(t, exitFailed, "--cpuprofile")
	call(t, nil, "bench", "copy", "--yardstick", nowhere).want(t, exitFailed, "make -C kernels yardstick")
}
