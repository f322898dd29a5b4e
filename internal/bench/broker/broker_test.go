package broker

import (
	"bytes"
	"context"
	"io"
	"os"
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

// tiny returns options for the smallest possible measurement, with one size, one round and one batch per partition.
func tiny(d device.Device, b *Bench) bench.Options {
	return bench.Options{
		Devices: []device.Device{d}, Suites: []bench.Suite{b.Suite()}, Groups: []string{suiteName},
		Bytes: []int{64}, Rounds: 1, Budget: 2 * time.Millisecond, Lanes: 4, Seed: 1, Pipeline: small,
		Out: io.Discard, Progress: func(string) {},
	}
}

// small returns the configuration of a small pipeline. Each round allocates a new one.
func small(_ device.Info, ops []operator.Operator) streams.Options {
	return streams.Options{Operators: ops, ScratchLimit: 4 << 20, BatchBytes: 256 << 10, BatchPayloads: 512}
}

// run measures the selection of o and fails on an error.
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
	o.Program = []string{os.Args[0], serve}
	b := New(o)
	b.forms, b.textForms, b.frameBytes, b.pollFirst = forms[:2], textForms[2:6], 1<<10, 20*time.Millisecond
	b.stateRecords = 1000
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the bench: %v", err)
		}
	})
	return b
}

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

// These are the figures of rows that measure throughput, without and with frames.
var (
	rateFigures  = []string{figureRecords, figureBytes, bench.FigureCores, figureFill}
	frameFigures = []string{figureWire, figureCompression}
)

// TestEveryRowIsMeasured checks that every row has its figures and a table line. The experiments run in parallel,
// because workers with exclusive delivery mostly wait before the first delivery.
func TestEveryRowIsMeasured(t *testing.T) {
	t.Parallel()
	const single, framed, text, forms = 1, 2, 4, 2 // forms of records in these tests
	checks := map[string]struct {
		lines   int
		figures []string // figures of each line
		framed  []string // figures of each line with frames
	}{
		rowNull:      {1, rateFigures, nil},
		rowShared:    {len(operatorLists), append([]string{figureOverNull, figureOverPlain}, rateFigures...), nil},
		rowExclusive: {len(operatorLists), append([]string{figureOverNull, figureOverPlain}, rateFigures...), nil},
		rowPlain:     {len(operatorLists), append([]string{figureOverNull}, rateFigures...), nil},

		rowFramesNull:      {framed, rateFigures, frameFigures},
		rowFramesShared:    {single + framed, rateFigures, append([]string{figureOverNull, figureOverPlain, figureOverSingle}, frameFigures...)},
		rowFramesExclusive: {single + framed, rateFigures, append([]string{figureOverNull, figureOverPlain, figureOverSingle}, frameFigures...)},
		rowFramesPlain:     {framed, rateFigures, append([]string{figureOverNull}, frameFigures...)},

		rowPairsNull:      {forms * len(severalPairs), append([]string{figureOverPair}, rateFigures...), frameFigures},
		rowPairsShared:    {forms * len(severalPairs), append([]string{figureOverNull, figureOverPair}, rateFigures...), frameFigures},
		rowPairsExclusive: {forms * len(severalPairs), append([]string{figureOverNull, figureOverPair}, rateFigures...), frameFigures},

		rowTextNull:      {len(nullForms), rateFigures, frameFigures},
		rowTextShared:    {text, rateFigures, frameFigures},
		rowTextExclusive: {text, rateFigures, frameFigures},

		rowDuplicates:          {1, append([]string{figureOverChecksums}, rateFigures...), frameFigures},
		rowDuplicatesChecksums: {1, rateFigures, frameFigures},
		rowReplay:              {1, []string{figureRecords, figureRead, figureReplayed, figureWire, bench.FigureCores}, nil},

		rowLatency:     {len(operatorLists), []string{figureLatency, figureLatencyP99}, nil},
		rowLatencyNull: {1, []string{figureLatency, figureLatencyP99}, nil},
	}
	for _, e := range New(Options{}).Suite().Experiments {
		t.Run(e.Rows[0].Name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Options{Memory: true})
			o := tiny(openHost(t), b)
			for _, row := range e.Rows {
				o.Rows = append(o.Rows, row.Name)
			}
			var table bytes.Buffer
			o.Out = &table
			r := run(t, o)
			for _, name := range o.Rows {
				c, list := checks[name], rows(r, name)
				if len(list) != c.lines || c.lines == 0 {
					t.Errorf("%d rows %s, want %d", len(list), name, c.lines)
				}
				for _, row := range list {
					wantFigures(t, row, c.figures...)
					if row.Framing != "" {
						wantFigures(t, row, c.framed...)
					}
					if row.Compression == "zstd" {
						wantFigures(t, row, figureOverUncompressed)
					}
					if row.Field != "" && row.Filter == "" && row.Operator != "" {
						wantFigures(t, row, figureOverLines)
					}
					if row.Filter != "" && row.Operator != "" {
						wantFigures(t, row, figureOverArrow)
					}
					if row.Results == "annotated" && row.Operator == "crc32c" {
						wantFigures(t, row, figureOverNull)
					}
				}
				if !strings.Contains(table.String(), "\n"+name+" ") {
					t.Errorf("the tables do not show %s", name)
				}
			}
			if !strings.Contains(table.String(), ownProcess) {
				t.Error("the tables do not say that the server shares the machine")
			}
			pairs := 1
			if e.Rows[0].Name == rowPairsNull {
				pairs = severalPairs[len(severalPairs)-1]
			}
			wantInMemory(t, b.server, pairs)
		})
	}
}

// wantInMemory checks that the streams of the last round, which had this number of pairs, are in memory.
func wantInMemory(t *testing.T, s *server, pairs int) {
	t.Helper()
	n := 0
	for stream := range s.js.ListStreams(t.Context()).Info() {
		n++
		if stream.Config.Storage != jetstream.MemoryStorage {
			t.Errorf("the stream %s is in %v storage, want memory", stream.Config.Name, stream.Config.Storage)
		}
	}
	if n != 3*pairs {
		t.Errorf("there are %d streams, want only the last round's", n)
	}
}

// TestEverySizeIsMeasured checks the figures for each size, with streams in files. Each of the larger records has its
// own frame.
func TestEverySizeIsMeasured(t *testing.T) {
	t.Parallel()
	o := tiny(openHost(t), newBench(t, Options{Connections: 2}))
	var table bytes.Buffer
	o.Rows, o.Bytes, o.Out = []string{rowNull, rowFramesNull}, []int{64, 3000}, &table
	r := run(t, o)
	for name, each := range map[string]int{rowNull: 1, rowFramesNull: 2} {
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
	if !strings.Contains(table.String(), "Every worker has 2 connections") {
		t.Error("the tables do not say how many connections there are")
	}
}

// TestConnections checks the number of connections of each worker.
func TestConnections(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		if got, want := New(Options{}).connections(exclusive), natsconn.DefaultConnections(exclusive); got != want {
			t.Errorf("exclusive %v: %d connections by default, want %d", exclusive, got, want)
		}
		if got := New(Options{Connections: 3}).connections(exclusive); got != 3 {
			t.Errorf("exclusive %v: %d connections, want 3", exclusive, got)
		}
	}
}

// TestServerElsewhere checks that a shared server keeps the streams of other users and none of the bench's streams. Streams of an
// interrupted run must not disturb the next run.
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
	for name, subject := range map[string]string{"THEIRS": "ingest.>", inStream + "OLD": inPrefix + "OLD.>"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	b := New(Options{Server: natsconn.Server{URL: server.URL()}})
	o := tiny(openHost(t), b)
	o.Rows = []string{rowNull}
	var table bytes.Buffer
	o.Out = &table
	wantFigures(t, rows(run(t, o), rowNull)[0], figureRecords)
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
		t.Errorf("the server has the streams %v, error %v, want only THEIRS", left, names.Err())
	}
}

// TestPayloadThatFitsNoBatch checks that the row contains advice for the user.
func TestPayloadThatFitsNoBatch(t *testing.T) {
	t.Parallel()
	o := tiny(openHost(t), newBench(t, Options{}))
	o.Rows, o.Bytes = []string{rowShared}, []int{3000}
	o.Pipeline = func(_ device.Info, ops []operator.Operator) streams.Options {
		return streams.Options{Operators: ops, ScratchLimit: 1 << 20, BatchBytes: 2048, BatchPayloads: 16}
	}
	for _, row := range rows(run(t, o), rowShared) {
		if !strings.Contains(row.Skipped, "MILLRACE_BATCH_BYTES") {
			t.Errorf("the row says %q", row.Skipped)
		}
	}
}

// TestSizesOfPayloads checks that the suite accepts sizes that batch suites reject. It must reject sizes that no payload can have.
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
		t.Errorf("together with a batch suite: %v", err)
	}
}

// TestInterrupted checks that an interrupted run ends, reports the interruption and leaves no streams.
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
