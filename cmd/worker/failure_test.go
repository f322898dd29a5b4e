package main

import (
	"bytes"
	"encoding/json"
	"log"
	"log/slog"
	"strings"
	"testing"

	"millrace/internal/config"
)

// records parses text with one JSON object per line.
func records(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("a line of the log is no JSON object: %s", line)
			continue
		}
		list = append(list, record)
	}
	return list
}

// TestAJSONLogStaysJSONWhenTheWorkerFails checks every log line of failed starts, including the last one.
func TestAJSONLogStaysJSONWhenTheWorkerFails(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, c := range map[string]struct {
		env   []string
		code  int
		error string
	}{
		"configuration":     {[]string{"MILLRACE_LANES=none", "MILLRACE_DEVICE=tpu"}, exitUsage, "the configuration is wrong"},
		"too little memory": {[]string{"MILLRACE_MEMORY_LIMIT=1MiB"}, exitUsage, "memory"},
		"no streams":        {[]string{"MILLRACE_NATS_URL=" + s.URL()}, exitFailed, "stream INGEST: not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := call(t, append(c.env, "MILLRACE_LOG_FORMAT=json"))
			r.want(t, c.code)
			list := records(t, r.errors)
			if len(list) == 0 {
				t.Fatal("there is no record")
			}
			last := list[len(list)-1]
			if text, _ := last["error"].(string); last["msg"] != failedText || !strings.Contains(text, c.error) || last["exit_status"] != float64(c.code) {
				t.Errorf("the last record is %v", last)
			}
		})
	}
	r := call(t, []string{"MILLRACE_LANES=none", "MILLRACE_DEVICE=tpu", "MILLRACE_LOG_FORMAT=json"}, "run")
	for i, variable := range []string{"MILLRACE_DEVICE", "MILLRACE_LANES"} {
		if list := records(t, r.errors); len(list) != 3 || list[i]["variable"] != variable || !strings.Contains(list[i]["error"].(string), "; set ") {
			t.Errorf("the records are %v, want one for each wrong variable", list)
		}
	}
	call(t, []string{"MILLRACE_LANES=none", "MILLRACE_LOG_FORMAT=text"}).want(t, exitUsage, "worker: 1 problem in the configuration:\n  MILLRACE_LANES")
}

// TestPackagesWithoutALogUseTheWorkers checks that output of slog's functions and of package log is also JSON and
// rate-limited.
func TestPackagesWithoutALogUseTheWorkers(t *testing.T) {
	before, output, flags := slog.Default(), log.Writer(), log.Flags()
	defer func() { slog.SetDefault(before); log.SetOutput(output); log.SetFlags(flags) }()
	var out bytes.Buffer
	a := newApp(&config.Config{}, slog.New(slog.NewJSONHandler(&out, nil)))
	const n = 1000
	for range n {
		slog.Warn("pinned memory is not placed")
		log.Print("from a library")
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	if list := records(t, out.String()); len(list) < 2 || len(list) > 50 {
		t.Errorf("%d records of %d, want at least one, and few", len(list), 2*n)
	}
}
