package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	benchreport "millrace/internal/bench/report"
)

func TestPlanShowsSlotsWithoutAndWithOverlap(t *testing.T) {
	r := call(t, nil, "plan", "--batches", "4")
	r.want(t, exitDone, "t=0: copy_in(batch 1)\n", "Total: 12 time units\n",
		"t=2: copy_in(batch 3) | compute(batch 2) | copy_out(batch 1)\n", "Total: 6 time units\n")
	if !strings.HasSuffix(r.out, "\nSpeedup: 2.00x\n") || r.errors != "" {
		t.Errorf("the plan does not end with the speedup:\n%s%s", r.out, r.errors)
	}
	if plain := call(t, nil, "plan"); plain.out != r.out {
		t.Errorf("without flags the plan differs:\n%s", plain.out)
	}
}

func TestPlanWithFlags(t *testing.T) {
	call(t, nil, "plan", "--stages", "2,3,1", "--batches", "3").want(t, exitDone, "Total: 18 time units", "Total: 12 time units", "Speedup: 1.50x")
	call(t, nil, "plan", "--lanes", "1").want(t, exitDone, "Pipelined, 1 lane", "Speedup: 1.00x")
	call(t, nil, "plan", "--model", "chunks", "--chunks", "4").want(t, exitDone, "Total: 3 T\n", "Total: 1.5 T\n", "Speedup: 2.00x")
	var c struct {
		Pipelined struct {
			Slots [][]string
			Total float64
		}
		Speedup float64
	}
	r := call(t, nil, "plan", "--json")
	if err := json.Unmarshal([]byte(r.out), &c); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	if c.Speedup != 2 || c.Pipelined.Total != 6 || len(c.Pipelined.Slots) != 6 || c.Pipelined.Slots[0][0] != "copy_in(batch 1)" {
		t.Errorf("the plan in JSON is %+v", c)
	}
}

func TestBadUsageOfPlan(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--batches 0", "0 batches: take 1 to 1000"},
		{"--batches many", "batches"},
		{"--lanes -1", "-1 lanes"},
		{"--stages 1,2", "give three numbers"},
		{"--stages 1,x,2", `"x" is not a number`},
		{"--stages 1,0,2", "compute takes 0 units"},
		{"--model rows", "use batches or chunks"},
		{"--chunks 3", "--chunks is only for --model chunks"},
		{"--model chunks --batches 3", "use --chunks"},
		{"--model chunks --chunks 0", "0 chunks: take 1 to 1000"},
		{"--bytes 1MiB", "--bytes is only for --fit"},
		{"--host 1us", "--host is only for --fit"},
		{"--fit x --host -1us", "--host is -1µs"},
		{"--fit x --batches 3", "--batches is not for --fit"},
		{"--fit x --bytes 1MB", `--bytes has "1MB"`},
		{"--fit x --bytes 8GiB", `--bytes has "8GiB"`},
		{"extra", "takes flags only"},
	} {
		if r := call(t, nil, append([]string{"plan"}, strings.Fields(c.args)...)...); r.code != exitUsage || !strings.Contains(r.errors, c.want) {
			t.Errorf("plan %s: status %d, %q; want %d and %q", c.args, r.code, r.errors, exitUsage, c.want)
		}
	}
}

// planReport writes a report of one operator at one batch size, with stages of 100 us, and returns its path.
func planReport(t *testing.T) string {
	t.Helper()
	of := func(seconds float64) benchreport.Spread {
		return benchreport.Spread{Median: seconds, Low: seconds, High: seconds, N: 3}
	}
	row := func(group, name string, lanes, buffers int, seconds float64) benchreport.Row {
		batch := of(seconds)
		return benchreport.Row{
			Group: group, Name: name, Device: "GPU-1", Lanes: lanes, Buffers: buffers, BatchBytes: 1 << 20, Operator: "crc32c", Batch: &batch,
			Stages: map[string]benchreport.Spread{"copy_in": of(100e-6), "compute": of(100e-6), "copy_out": of(100e-6)},
		}
	}
	var text bytes.Buffer
	if err := (&benchreport.Report{
		Version: benchreport.Version, Devices: []benchreport.Device{{Kind: "cuda", ID: "GPU-1", Name: "a GPU"}},
		Rows: []benchreport.Row{
			row("schedules", "serial", 1, 1, 350e-6), row("streams", "lanes", 1, 2, 300e-6),
			row("streams", "lanes", 2, 2, 200e-6), row("streams", "lanes", 8, 2, 100e-6),
		},
	}).Write(&text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bench.json")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPlanFromAReport(t *testing.T) {
	file := planReport(t)
	call(t, nil, "plan", "--fit", file, "--bytes", "4MiB,256KiB").want(t, exitDone,
		"GPU-1 (a GPU), operator crc32c", "256KiB", "4MiB", "knee", "bottleneck", "200.0 us",
		"assumed: All stage times are of batches of 1048576 bytes", "Largest error: -25.0 % (1MiB batches, triple, 2 lanes)")

	var forecasts []struct {
		Operator    string
		Predictions []struct {
			Lanes    int
			Schedule string
			Seconds  float64  `json:"batch_seconds"`
			Error    *float64 `json:"error"`
		}
	}
	r := call(t, nil, "plan", "--fit", file, "--json")
	if err := json.Unmarshal([]byte(r.out), &forecasts); err != nil {
		t.Fatalf("%v:\n%s", err, r.out)
	}
	if len(forecasts) != 1 || forecasts[0].Operator != "crc32c" || len(forecasts[0].Predictions) != 8 {
		t.Fatalf("the forecast in JSON is %+v", forecasts)
	}
	for _, p := range forecasts[0].Predictions {
		if measured := p.Lanes < 3 || p.Lanes == 8; measured != (p.Error != nil) || p.Seconds < 99e-6 {
			t.Errorf("prediction %+v: want an error where a row was measured, and at least the time of one stage", p)
		}
	}
}

func TestPlanRefusesUnusableFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	call(t, nil, "plan", "--fit", file).want(t, exitFailed, file, "no such file")
	for text, want := range map[string]string{
		"lanes,seconds\n":    "worker bench --json FILE",
		`{"version": 9}`:     "version 9",
		`{"traceEvents":[]}`: "take one of a worker that has work",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		call(t, nil, "plan", "--fit", file).want(t, exitFailed, file, want)
	}
}
