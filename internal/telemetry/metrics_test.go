package telemetry_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/internal/device"
	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

var update = flag.Bool("update", false, "write docs/metrics.md and testdata anew")

var build = telemetry.Build{Version: "v0.0.0", Commit: "abc", GoVersion: "go1.26"}

// observed returns a Metrics after one observation of each kind, and its families by name.
func observed(t *testing.T) (*telemetry.Metrics, map[string]family) {
	t.Helper()
	m := telemetry.NewMetrics(build)
	m.AddDevice("host")
	m.SetFallback(true)
	m.BatchDone(pipelined("host", 1, 1)[0])
	m.DeviceError("host", "out_of_memory")
	m.Settled(inflight.Published, 100, 40, 3*ms, 20*time.Second)
	m.AddFilter([]string{"record.bytes > 5", "quality.words >= 50"})
	m.Frame(inflight.FrameStats{
		LeftOut: []int{7, 8, 9}, Framed: true, Records: [record.Statuses]int{record.OK: 90, record.Null: 4, record.TooLarge: 3, record.OperatorError: 2, record.DeviceFault: 1},
		Parts: 2, Compressed: 1000, Decompressed: 4000, Decompressing: 4 * ms, Splitting: ms,
	})
	m.AddOperators([]string{"crc32c"})
	m.OperatorFault(inflight.OperatorFault{Operator: "crc32c", Fault: operator.FaultDevice, At: time.Unix(1e9, 0)})
	m.Redelivered()
	m.Pending(42)
	m.Unacknowledged(17)
	m.Stalled(3)
	m.Restarted()
	m.PayloadLeftOut()
	m.DeadLettered(inflight.DeadLetter{Record: -1, Reason: "no_field", Cause: errors.New("no text")})
	m.Trim(30, trim.State{Held: trim.Missing})
	end := &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 100}}
	m.Trim(1, trim.State{Info: end, Holder: "other", Floor: 50})
	m.Trim(2, trim.State{Info: end, Holder: "millrace-3", Floor: 60})
	m.Reconnected()
	m.Watch(func() []streams.Stats { return []streams.Stats{someStats("host")} })
	m.SetLimits(telemetry.Limits{BatchBytes: 4 << 20, BatchPayloads: 8192, AckWait: 30 * time.Second})
	m.WatchWorker(func() ingest.Status { return ingest.Status{InHand: 5, HeldBack: 2, Partitions: 6} })
	m.WatchShards(func() []ingest.ShardStatus {
		return []ingest.ShardStatus{{Stream: "INGEST", Pending: 8, Unacknowledged: 9}}
	})
	m.WatchStates(1<<30, func() ingest.StateFigures {
		return ingest.StateFigures{Waiting: 1, Decided: 9, Hits: 2, LogBytes: 5000, Owned: []device.StateStats{{Bytes: 100, Records: 7, Generation: 3, Load: 0.25}, {Bytes: 200, Records: 5, Generation: 2, Load: 0.5}}}
	})
	m.StateLogged(1000)
	m.StateLogged(160)
	m.StateReplayed(40)
	m.StateTrimFailed()
	m.WatchConnected(func() bool { return true })
	for _, level := range []slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelWarn + 1, slog.LevelError + 4} {
		m.LogSuppressed(level)
	}
	m.WatchMemory(func() memory.Usage { return memory.Usage{Limit: 1 << 28, Used: 1 << 20, Waits: 3} })
	return m, gather(t, m)
}

// family is a scraped metric family.
type family struct {
	kind, help string // "counter", "gauge" or "histogram"
	samples    []sample
}

// sample is one metric of a family. For a histogram, value is the sum and count is the number of observations.
type sample struct {
	labels []label
	value  float64
	count  uint64
	bounds []float64
}

type label struct{ name, value string }

func gather(t *testing.T, m *telemetry.Metrics) map[string]family {
	t.Helper()
	scraped, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]family{}
	for _, s := range scraped {
		f := family{kind: strings.ToLower(s.GetType().String()), help: s.GetHelp()}
		for _, m := range s.GetMetric() {
			h := m.GetHistogram() // nil for other kinds; the methods of nil return zero
			one := sample{value: m.GetCounter().GetValue() + m.GetGauge().GetValue() + h.GetSampleSum(), count: h.GetSampleCount()}
			for _, l := range m.GetLabel() {
				one.labels = append(one.labels, label{l.GetName(), l.GetValue()})
			}
			for _, b := range h.GetBucket() {
				one.bounds = append(one.bounds, b.GetUpperBound())
			}
			f.samples = append(f.samples, one)
		}
		families[s.GetName()] = f
	}
	return families
}

// value finds a metric by its labels ("name=value,...", sorted by name) and returns its value and its count.
func value(t *testing.T, families map[string]family, name, labels string) (v float64, count uint64) {
	t.Helper()
	for _, s := range families[name].samples {
		var pairs []string
		for _, l := range s.labels {
			pairs = append(pairs, l.name+"="+l.value)
		}
		if strings.Join(pairs, ",") == labels {
			return s.value, s.count
		}
	}
	t.Errorf("no %s{%s}", name, labels)
	return 0, 0
}

func TestEveryMetricOfTheContract(t *testing.T) {
	_, families := observed(t)
	for _, tc := range []struct {
		name, labels string
		want         float64 // the value, or the sum of a histogram with one observation
	}{
		{"messages_total", "outcome=published", 1}, {"messages_total", "outcome=deadlettered", 0},
		{"messages_total", "outcome=nacked", 0}, {"messages_total", "outcome=duplicate", 0},
		{"dead_letters_total", "reason=no_field", 1}, {"dead_letters_total", "reason=filter_error", 0},
		{"payload_bytes_total", "direction=in", 100}, {"payload_bytes_total", "direction=out", 40},
		{"batches_total", "device=host", 1}, {"batch_payloads", "device=host", 100}, {"batch_bytes", "device=host", 1 << 20},
		{"batch_close_total", "device=host,reason=bytes", 1}, {"batch_close_total", "device=host,reason=count", 0},
		{"batch_close_total", "device=host,reason=linger", 0}, {"batch_close_total", "device=host,reason=drain", 0},
		{"stage_seconds", "device=host,stage=fill", 0.0005}, {"stage_seconds", "device=host,stage=copy_in", 0.001},
		{"stage_seconds", "device=host,stage=compute", 0.0012}, {"stage_seconds", "device=host,stage=copy_out", 0.0008},
		{"stage_seconds", "device=host,stage=publish", 0.0003}, {"stage_seconds", "device=host,stage=settle", 0.00005},
		{"payload_latency_seconds", "", 0.003}, {"ack_headroom_seconds", "", 20},
		{"engine_busy_seconds_total", "device=host,engine=copy_in", 2}, {"engine_busy_seconds_total", "device=host,engine=compute", 3},
		{"engine_busy_seconds_total", "device=host,engine=copy_out", 1},
		{"overlap_seconds_total", "device=host", 1.5}, {"device_busy_seconds_total", "device=host", 4},
		{"lanes", "device=host,state=free", 1}, {"lanes", "device=host,state=filling", 2}, {"lanes", "device=host,state=in_flight", 3},
		{"scratch_pool_bytes", "device=host,state=used", 10}, {"scratch_pool_bytes", "device=host,state=reserved", 20},
		{"scratch_pool_bytes", "device=host,state=high_water", 15}, {"pinned_bytes", "device=host", 64 << 20},
		{"scratch_allocations_total", "device=host", 7}, {"redeliveries_total", "", 1}, {"consumer_pending", "", 42}, {"consumer_ack_pending", "", 17},
		{"device_errors_total", "device=host,kind=out_of_memory", 1}, {"device_errors_total", "device=host,kind=lost", 0},
		{"device_fallback", "", 1}, {"nats_reconnects_total", "", 1}, {"build_info", "commit=abc,goversion=go1.26,version=v0.0.0", 1},
		// The next entries are the worker's own metrics.
		{"records_total", "outcome=ok", 90}, {"records_total", "outcome=null", 4}, {"records_total", "outcome=too_large", 3},
		{"records_total", "outcome=operator_error", 2}, {"records_total", "outcome=device_fault", 1},
		{"records_filtered_total", "filter=record.bytes > 5", 7}, {"records_filtered_total", "filter=null", 9}, {"records_filtered_total", "filter=quality.words >= 50", 8},
		{"frame_records", "", 100}, {"frame_result_parts_total", "", 2},
		{"decompression_bytes_total", "direction=in", 1000}, {"decompression_bytes_total", "direction=out", 4000},
		{"unpack_seconds_total", "step=decompress", 0.004}, {"unpack_seconds_total", "step=split", 0.001},
		{"pageable_bytes", "device=host", 4096}, {"scratch_limit_bytes", "device=host", 1 << 30},
		{"scratch_allocation_failures_total", "device=host", 2},
		{"batch_limit_bytes", "", 4 << 20}, {"batch_limit_payloads", "", 8192}, {"ack_wait_seconds", "", 30}, {"in_hand_batches", "", 5}, {"held_back_payloads", "", 2},
		{"partitions_owned", "", 6},
		{"device_errors_total", "device=host,kind=probe", 0}, {"consumer_stalled", "", 3}, {"partition_restarts_total", "", 1},
		{"deadletters_without_payload_total", "", 1},
		{"trimmed_inputs_total", "", 33}, {"trim_floor_distance", "consumer=millrace-3", 40}, {"trim_held", "reason=missing", 0},
		{"log_suppressed_total", "level=debug", 0}, {"log_suppressed_total", "level=info", 1},
		{"log_suppressed_total", "level=warn", 2}, {"log_suppressed_total", "level=error", 1},
		{"memory_budget_bytes", "state=limit", 1 << 28}, {"memory_budget_bytes", "state=used", 1 << 20}, {"memory_budget_waits_total", "", 3},
	} {
		got, count := value(t, families, "millrace_"+tc.name, tc.labels)
		if diff := got - tc.want; diff > 1e-12 || diff < -1e-12 {
			t.Errorf("%s{%s} is %v, want %v", tc.name, tc.labels, got, tc.want)
		}
		if families["millrace_"+tc.name].kind == "histogram" && count != 1 {
			t.Errorf("%s{%s} has %d observations, want 1", tc.name, tc.labels, count)
		}
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if len(families[name].samples) == 0 {
			t.Errorf("no %s", name)
		}
	}
}

func TestLint(t *testing.T) {
	m, _ := observed(t)
	problems, err := testutil.GatherAndLint(m.Registry())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestNoPipelineYet(t *testing.T) {
	families := gather(t, telemetry.NewMetrics(build))
	if len(families["millrace_lanes"].samples) != 0 {
		t.Error("lanes are exported without a pipeline")
	}
	if len(families["millrace_messages_total"].samples) == 0 {
		t.Error("the counters of messages don't start at zero")
	}
}

func TestAddDeviceStartsAtZero(t *testing.T) {
	m := telemetry.NewMetrics(build)
	m.AddDevice("GPU-1")
	m.AddDevice("GPU-1")
	if v, _ := value(t, gather(t, m), "millrace_batches_total", "device=GPU-1"); v != 0 {
		t.Errorf("%v batches before the first", v)
	}
}

func TestStagesThatDidNotHappenAreNotObserved(t *testing.T) {
	m := telemetry.NewMetrics(build)
	m.AddDevice("host")
	r := pipelined("host", 1, 1)[0]
	r.Publish = streams.Span{}
	r.Err = errors.New("failed")
	m.BatchDone(r)
	families := gather(t, m)
	if _, n := value(t, families, "millrace_stage_seconds", "device=host,stage=publish"); n != 0 {
		t.Errorf("publish observed %d times", n)
	}
	if _, n := value(t, families, "millrace_stage_seconds", "device=host,stage=compute"); n != 1 {
		t.Errorf("compute observed %d times", n)
	}
}

func TestOnlyStoredResultsHaveALatency(t *testing.T) {
	m := telemetry.NewMetrics(build)
	for o := range inflight.NumOutcomes {
		m.Settled(o, 1, 1, ms, -ms)
	}
	families := gather(t, m)
	if _, n := value(t, families, "millrace_payload_latency_seconds", ""); n != 2 {
		t.Errorf("%d latencies, want those of published and duplicate", n)
	}
	if sum, n := value(t, families, "millrace_ack_headroom_seconds", ""); n != uint64(inflight.NumOutcomes) || sum >= 0 {
		t.Errorf("headroom: %d observations, sum %v; want %d observations below zero", n, sum, inflight.NumOutcomes)
	}
}

// TestACompressedRecordIsNoFrame: a compressed message of one record is counted only as decompressed, not as a frame.
func TestACompressedRecordIsNoFrame(t *testing.T) {
	m := telemetry.NewMetrics(build)
	m.Frame(inflight.FrameStats{Records: [record.Statuses]int{record.OK: 1}, Parts: 1, Compressed: 10, Decompressed: 30})
	families := gather(t, m)
	if in, _ := value(t, families, "millrace_decompression_bytes_total", "direction=in"); in != 10 {
		t.Errorf("%v bytes before decompression, want 10", in)
	}
	if n, _ := value(t, families, "millrace_records_total", "outcome=ok"); n != 0 {
		t.Errorf("%v records of frames, want none", n)
	}
	if _, n := value(t, families, "millrace_frame_records", ""); n != 0 {
		t.Errorf("%d frames, want none", n)
	}
	if n, _ := value(t, families, "millrace_frame_result_parts_total", ""); n != 0 {
		t.Errorf("%v parts of results of frames, want none", n)
	}
}

func TestUnknownErrorKindIsOther(t *testing.T) {
	m := telemetry.NewMetrics(build)
	m.DeviceError("host", "brand new")
	if v, _ := value(t, gather(t, m), "millrace_device_errors_total", "device=host,kind=other"); v != 1 {
		t.Errorf("other is %v", v)
	}
}

func TestFallbackClears(t *testing.T) {
	m, _ := observed(t)
	m.SetFallback(false)
	if v, _ := value(t, gather(t, m), "millrace_device_fallback", ""); v != 0 {
		t.Errorf("device_fallback is %v after it cleared", v)
	}
}

// TestObserversAllocateNothing: the observers run on the pipeline's hot path and must not allocate.
func TestObserversAllocateNothing(t *testing.T) {
	m, line := telemetry.NewMetrics(build), telemetry.NewTimeline(8)
	both := telemetry.Observers{m, line}
	r := pipelined("GPU-1", 1, 1)[0]
	for name, call := range map[string]func(){
		"BatchDone":   func() { both.BatchDone(r) },
		"DeviceError": func() { both.DeviceError("GPU-1", "launch") },
		"Settled":     func() { m.Settled(inflight.Published, 2048, 300, ms, time.Second) },
		"Frame":       func() { m.Frame(inflight.FrameStats{Framed: true, Parts: 1}) },
		"Redelivered": m.Redelivered,
		"Pending":     func() { m.Pending(7) },
		"Unacked":     func() { m.Unacknowledged(7) },
		"Reconnected": m.Reconnected,
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestConcurrentUse calls all methods from several goroutines at the same time, for the race detector.
func TestConcurrentUse(t *testing.T) {
	m, line := telemetry.NewMetrics(build), telemetry.NewTimeline(16)
	m.Watch(func() []streams.Stats { return []streams.Stats{someStats("a"), someStats("b")} })
	const goroutines, rounds = 4, 50
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for _, r := range pipelined(string(rune('a'+g%2)), rounds, 2) {
				telemetry.Observers{m, line}.BatchDone(r)
				m.Settled(inflight.Nacked, 1, 0, 0, 0)
			}
			gather(t, m)
			if err := line.WriteTrace(&strings.Builder{}, 0); err != nil {
				t.Error(err)
			}
			if err := line.RenderGantt(&strings.Builder{}, 80); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if v, _ := value(t, gather(t, m), "millrace_messages_total", "outcome=nacked"); v != goroutines*rounds {
		t.Errorf("%v messages, want %d", v, goroutines*rounds)
	}
}

// The table in docs/metrics.md is between these lines.
const (
	tableBegin = "<!-- table: made by go test ./internal/telemetry -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
	docFile    = "../../docs/metrics.md"
)

func TestDocumentation(t *testing.T) {
	_, families := observed(t)
	var table strings.Builder
	table.WriteString("\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	var names []string
	for name := range families {
		if strings.HasPrefix(name, "millrace_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := families[name]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, f.kind, describeLabels(name, f), f.help)
	}
	doc, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the lines around the table:\n%s%s", docFile, tableBegin, tableEnd)
	}
	golden(t, docFile, before+tableBegin+table.String()+"\n"+tableEnd+after)
}

// describeLabels lists a family's labels, with their values if the values are fixed.
func describeLabels(metric string, f family) string {
	values := map[string][]string{}
	var names []string
	for _, s := range f.samples {
		for _, l := range s.labels {
			if _, seen := values[l.name]; !seen {
				names = append(names, l.name)
			}
			if !slices.Contains(values[l.name], l.value) {
				values[l.name] = append(values[l.name], l.value)
			}
		}
	}
	for i, name := range names {
		names[i] = "`" + name + "`"
		if name != "device" && name != "consumer" && metric != "millrace_build_info" {
			names[i] += ": " + strings.Join(values[name], ", ")
		}
	}
	return strings.Join(names, "; ")
}

// golden compares a file with its expected content, and updates the file if requested.
func golden(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date (go test ./internal/telemetry -update writes it); want\n%s", file, want)
	}
}
