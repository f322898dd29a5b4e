package broker

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func openHost(t *testing.T, kernels ...device.HostKernel) device.Device {
	t.Helper()
	if len(kernels) == 0 {
		kernels = operator.HostKernels()
	}
	d, err := host.Open(host.Options{Cores: 2, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// tiny returns options for the smallest possible measurement: one size and one round, with one batch per partition.
func tiny(d device.Device, b *Bench) bench.Options {
	return bench.Options{
		Devices: []device.Device{d}, Suites: []bench.Suite{b.Suite()}, Groups: []string{suiteName},
		Bytes: []int{64}, Rounds: 1, Budget: 2 * time.Millisecond, Lanes: 4, Seed: 1, Pipeline: small,
	}
}

// small is a pipeline whose memory costs little: each round has a new one.
func small(_ device.Info, ops []operator.Operator) streams.Config {
	return streams.Config{Operators: ops, ScratchLimit: 4 << 20, BatchBytes: 256 << 10, BatchPayloads: 512}
}

// run makes the measurements that o selects, and fails on an error.
func run(t *testing.T, o bench.Options) *report.Report {
	t.Helper()
	r, err := bench.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newBench(t *testing.T, o Options) *Bench {
	t.Helper()
	b := New(o)
	b.frameBytes, b.pollFirst = 1<<10, 20*time.Millisecond
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the bench: %v", err)
		}
	})
	return b
}

// rows returns the rows with that name.
func rows(r *report.Report, name string) (list []report.Row) {
	for _, row := range r.Rows {
		if row.Group == suiteName && row.Name == name {
			list = append(list, row)
		}
	}
	return list
}

// wantFigures checks that the row has one positive sample of each figure per round.
func wantFigures(t *testing.T, row report.Row, names ...string) {
	t.Helper()
	for _, name := range names {
		if f, ok := row.Figure(name); !ok || f.N != 1 || f.Low <= 0 {
			t.Errorf("%s of %d bytes, %q, has %q %+v, want one of 1 round; skipped: %q", row.Name, row.PayloadBytes, row.Operator, name, f, row.Skipped)
		}
	}
}

// wantRates checks that every row that shows how fast a worker is has its figures, for each size.
func wantRates(t *testing.T, r *report.Report, sizes int) {
	t.Helper()
	for name, compared := range map[string][]string{
		rowAsync: nil, rowBatch: nil, rowAckAll: nil, rowPinned: nil,
		rowShared:    {figureOverAsync, figureOverNull, figureOverPlain},
		rowPlain:     {figureOverAsync},
		rowExclusive: {figureOverAsync, figureOverNull, figureOverPlain, figureOverShared},

		rowSharedMore:   {figureOverAsync, figureOverNull, figureOverUsual},
		rowExclusiveOne: {figureOverAsync, figureOverNull, figureOverUsual},
	} {
		list, want := rows(r, name), sizes
		if slices.Contains([]string{rowShared, rowExclusive, rowPlain}, name) {
			want *= len(operatorLists)
		}
		if len(list) != want {
			t.Errorf("%d rows %s, want %d", len(list), name, want)
		}
		for _, row := range list {
			wantFigures(t, row, append(compared, figurePayloads, figureBytes, bench.FigureCores)...)
			wantGroups(t, row)
		}
	}
}

// wantFrames checks that every row with frames has its figures, for each form and each size.
func wantFrames(t *testing.T, r *report.Report, sizes int) {
	t.Helper()
	for name, null := range map[string]bool{rowFramesBatch: true, rowFramesPinned: true, rowFramesShared: false, rowFramesExclusive: false} {
		list, want := rows(r, name), sizes*len(forms)
		if !null {
			want += sizes // with one record per message
		}
		if len(list) != want {
			t.Errorf("%d rows %s, want %d", len(list), name, want)
		}
		for _, row := range list {
			names := []string{figureRecords, figureBytes, figureFill, bench.FigureCores}
			if row.Framing != "none" {
				names = append(names, figureWire, figureCompression)
			}
			if row.Framing != "none" && !null {
				names = append(names, figureOverNull, figureOverSingle)
			}
			if row.Compression != "none" {
				names = append(names, figureOverUncompressed)
			}
			wantFigures(t, row, names...)
		}
	}
}

// wantGroups checks that rows that store results together have at least one payload per group.
func wantGroups(t *testing.T, row report.Row) {
	t.Helper()
	together := row.Name != rowAsync && row.Name != rowPlain
	if f, ok := row.Figure(figureFill); ok != together || ok && f.Low < 1 {
		t.Errorf("%s of %d bytes has %d samples of payloads a batch, the least %v", row.Name, row.PayloadBytes, f.N, f.Low)
	}
}

// TestEveryRowIsMeasured checks that every row has its figures and a line in a table. The experiments run at once, because workers
// mostly wait before their first delivery.
func TestEveryRowIsMeasured(t *testing.T) {
	t.Parallel()
	check := map[string]func(t *testing.T, r *report.Report, sizes int){
		rowAsync: wantRates, rowWindow: wantOnce, rowWindow3: wantCluster, rowFramesBatch: wantFrames, "latency": wantLatency, "memory": wantMemory,
	}
	for _, e := range New(Options{}).Suite().Experiments {
		t.Run(e.Rows[0].Name, func(t *testing.T) {
			t.Parallel()
			// Streams in files cost more, and the other experiments have them.
			memory := e.Rows[0].Name == rowAsync || e.Rows[0].Name == rowFramesBatch
			b := newBench(t, Options{Memory: memory})
			b.memoryLeast = 32
			o := tiny(openHost(t), b)
			for _, row := range e.Rows {
				o.Rows = append(o.Rows, row.Name)
			}
			where := oneProcess
			if e.Rows[0].Name == rowWindow3 {
				where = oneProcessCluster
			}
			var table bytes.Buffer
			o.Out = &table
			check[e.Rows[0].Name](t, run(t, o), len(o.Bytes))
			for _, name := range o.Rows {
				if !strings.Contains(table.String(), "\n"+name+" ") {
					t.Errorf("the tables do not show %s", name)
				}
			}
			if !strings.Contains(table.String(), where) {
				t.Error("the tables do not say that the server shares the cores")
			}
			if memory {
				wantInMemory(t, b.server)
			}
		})
	}
}

// wantLatency checks the rows that show latencies.
func wantLatency(t *testing.T, r *report.Report, _ int) {
	t.Helper()
	for _, name := range []string{"latency", "latency-null"} {
		for _, row := range rows(r, name) {
			wantFigures(t, row, figureLatency, figureLatencyP99)
		}
	}
	if n := len(rows(r, "latency")); n != len(operatorLists) {
		t.Errorf("%d rows latency, want %d", n, len(operatorLists))
	}
}

// wantMemory checks the rows that show the memory of the process.
func wantMemory(t *testing.T, r *report.Report, _ int) {
	t.Helper()
	wantFigures(t, rows(r, "memory")[0], figureResident, figureBefore, figureBuffers)
	wantFigures(t, rows(r, "memory-null")[0], figureResident, figureBefore)
}

// wantInMemory checks that the streams of the last round are in memory.
func wantInMemory(t *testing.T, s *server) {
	t.Helper()
	for _, name := range []string{s.in, s.out, s.dead()} {
		stream, err := s.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.Storage; got != jetstream.MemoryStorage {
			t.Errorf("the stream %s is in %v storage, want memory", name, got)
		}
	}
}

// TestEverySizeIsMeasured checks that rows of each kind have figures for each size. The larger records are alone in their frames.
func TestEverySizeIsMeasured(t *testing.T) {
	t.Parallel()
	o := tiny(openHost(t), newBench(t, Options{Memory: true}))
	o.Rows, o.Bytes = []string{rowAsync, rowWindow, rowFramesBatch}, []int{64, 3000}
	r := run(t, o)
	for name, each := range map[string]int{rowAsync: 1, rowWindow: 1, rowFramesBatch: len(forms)} {
		for _, size := range o.Bytes {
			n := 0
			for _, row := range rows(r, name) {
				if row.PayloadBytes == size {
					wantFigures(t, row, figureBytes)
					n++
				}
			}
			if n != each {
				t.Errorf("%s has %d rows of %d bytes, want %d", name, n, size, each)
			}
		}
	}
}

// TestConnectionsOfEveryWorker checks that another number of connections applies to every worker, and that the tables
// say so.
func TestConnectionsOfEveryWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{Connections: 2})
	o := tiny(openHost(t), b)
	o.Rows = []string{rowPinned, rowShared, rowExclusive, rowSharedMore}
	var table bytes.Buffer
	o.Out = &table
	r := run(t, o)
	if !strings.Contains(table.String(), "Every worker has 2 connections") {
		t.Error("the tables do not say how many connections there are")
	}
	if b.server.connections != (connections{shared: 2, exclusive: 2}) {
		t.Errorf("workers have %+v", b.server.connections)
	}
	for _, row := range rows(r, rowSharedMore) {
		wantFigures(t, row, figurePayloads, figureOverNull)
		if _, compared := row.Figure(figureOverUsual); compared {
			t.Error("a row is compared with the usual number of connections, which was not measured")
		}
	}
}

// TestServerWithoutBatches checks that rows that need batches report that, and that the others are measured.
func TestServerWithoutBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	b.withoutBatches = true
	o := tiny(openHost(t), b)
	o.Rows = []string{rowBatch, rowAckAll, rowPinned, rowShared}
	r := run(t, o)
	for _, name := range []string{rowBatch, rowAckAll, rowPinned} {
		if list := rows(r, name); len(list) != 1 || !strings.Contains(list[0].Skipped, "2.14") {
			t.Errorf("%s has %+v, want one row that says what it takes", name, list)
		}
	}
	ours := rows(r, rowShared)[0]
	wantFigures(t, ours, figurePayloads, figureOverAsync)
	if f, ok := ours.Figure(figureOverNull); ok {
		t.Errorf("it is compared with what was not measured: %+v", f)
	}
	if len(rows(r, rowAsync)) != 0 {
		t.Error("a row that nobody asked for is in the report")
	}
}

// TestServerElsewhere checks that a server that others use keeps their streams and none of ours. The streams of an
// interrupted run don't disturb the next one.
func TestServerElsewhere(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, subject := range map[string]string{"THEIRS": "ingest.>", streamPrefix + "IN_3": inPrefix + ".>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	b := New(Options{Server: natsconn.Server{URL: server.URL()}})
	o := tiny(openHost(t), b)
	o.Rows = []string{rowAsync}
	var table bytes.Buffer
	o.Out = &table
	wantFigures(t, rows(run(t, o), rowAsync)[0], figurePayloads)
	if !strings.Contains(table.String(), elsewhere) {
		t.Errorf("the table does not say that the server is elsewhere:\n%s", table.String())
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var left []string
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		left = append(left, name)
	}
	if names.Err() != nil || len(left) != 1 || left[0] != "THEIRS" {
		t.Errorf("the server is left with the streams %v, error %v, want THEIRS alone", left, names.Err())
	}
}

// TestPayloadThatFitsNoBatch checks that the row tells the user what to do.
func TestPayloadThatFitsNoBatch(t *testing.T) {
	t.Parallel()
	o := tiny(openHost(t), newBench(t, Options{}))
	o.Rows, o.Bytes = []string{rowShared}, []int{3000}
	o.Pipeline = func(_ device.Info, ops []operator.Operator) streams.Config {
		return streams.Config{Operators: ops, ScratchLimit: 1 << 20, BatchBytes: 2048, BatchPayloads: 16}
	}
	for _, row := range rows(run(t, o), rowShared) {
		if !strings.Contains(row.Skipped, "MILLRACE_BATCH_BYTES") {
			t.Errorf("the row says %q", row.Skipped)
		}
	}
}

// TestSizesOfPayloads checks that the suite alone accepts sizes that batches can't have, and rejects sizes that
// payloads can't have.
func TestSizesOfPayloads(t *testing.T) {
	o := tiny(nil, New(Options{}))
	o.Bytes = []int{1, 4 << 10}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	o.Bytes = []int{0, embedded.MaxPayload}
	err := o.Check()
	for _, want := range []string{"a payload of 0 bytes", "a payload of 4194304 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	o.Groups = nil
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), "a batch of 0 bytes") {
		t.Errorf("beside batches: %v", err)
	}
}

// TestInterrupted checks that an interrupted run ends, reports the interruption and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	o := tiny(openHost(t), b)
	o.Rows = []string{rowShared}
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(doing string) {
		if strings.Contains(doing, rowShared) {
			cancel()
		}
	}
	if _, err := bench.Run(ctx, o); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("the error is %v", err)
	}
}
