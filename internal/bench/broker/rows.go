package broker

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"time"

	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/operator"
)

const (
	rowNull      = "null"
	rowShared    = "millrace-shared"
	rowExclusive = "millrace-exclusive"
	rowPlain     = "go-worker"

	rowFramesNull      = "frames-null"
	rowFramesShared    = "frames-shared"
	rowFramesExclusive = "frames-exclusive"
	rowFramesPlain     = "frames-go-worker"

	rowTextNull      = "text-null"
	rowTextShared    = "text-shared"
	rowTextExclusive = "text-exclusive"

	rowDuplicates          = "neardup-exclusive"
	rowDuplicatesChecksums = "neardup-crc32c"
	rowReplay              = "neardup-replay"

	rowLatency     = "latency"
	rowLatencyNull = "latency-null"
)

// rateEntries are the rows that measure the rates of workers with messages of one record.
var rateEntries = []bench.Entry{
	{Name: rowNull, Shows: "a worker that computes nothing: for each of 8 partitions it stores the results of a group of inputs in one batch, and acknowledges the group at once"},
	{Name: rowShared, Shows: "Millrace on the device, with crc32c, and with crc32c and minhash"},
	{Name: rowExclusive, Shows: "the same with exclusive delivery of 8 partitions: results in order, one acknowledgement per batch"},
	{Name: rowPlain, Shows: "the same operators in plain Go on all cores, otherwise like null"},
}

// frameEntries are the rows that measure the rates of workers with messages of several records.
var frameEntries = []bench.Entry{
	{Name: rowFramesNull, Shows: "null with messages of 512 KiB that hold records of 256 bytes: newline-delimited, also with zstd, length-delimited, Arrow"},
	{Name: rowFramesShared, Shows: "millrace-shared with crc32c and the same messages, and with one record per message"},
	{Name: rowFramesExclusive, Shows: "millrace-exclusive with crc32c and the same messages, and with one record per message"},
	{Name: rowFramesPlain, Shows: "go-worker with crc32c and the same messages"},
}

// textEntries are the rows that measure the rates of workers with JSON lines.
var textEntries = []bench.Entry{
	{Name: rowTextNull, Shows: "null with the messages of text-shared: it stores results of all lines in Arrow, and half of the lines, annotated"},
	{Name: rowTextShared, Shows: "millrace-shared with messages of 512 KiB that hold JSON lines of 512 bytes: whole lines, their texts, annotated documents, and a filter that keeps half, with crc32c and with quality"},
	{Name: rowTextExclusive, Shows: "the same with millrace-exclusive"},
}

// duplicatesEntries are the rows that measure the rates of workers with near-duplicates among the texts.
var duplicatesEntries = []bench.Entry{
	{Name: rowDuplicatesChecksums, Shows: "millrace-exclusive with crc32c and commit markers, and the messages of neardup-exclusive"},
	{Name: rowDuplicates, Shows: "millrace-exclusive with neardup and messages of 512 KiB that hold texts of 512 bytes: exactly once, with the log of the states"},
}

// replayEntries are the rows that measure how fast a worker restores a state.
var replayEntries = []bench.Entry{
	{Name: rowReplay, Shows: "the records that a new owner of a partition reads from the log of neardup and replays on the device; both also alone"},
}

// latencyEntries are the rows that measure the latency of a payload at a low rate.
var latencyEntries = []bench.Entry{
	{Name: rowLatency, Shows: "millrace-shared with 1,000 payloads of 1 KiB per second: from when a payload is stored until its result is"},
	{Name: rowLatencyNull, Shows: "the same for null"},
}

// These are the names of figures in the report.
const (
	figureRecords     = "records a second"
	figureBytes       = "record bytes a second"
	figureWire        = "message bytes a second"
	figureCompression = "record bytes over message bytes"
	figureFill        = "records a batch"

	figureOverNull         = "records a second over the null worker"
	figureOverPlain        = "records a second over the worker in plain Go"
	figureOverSingle       = "records a second over one record per message"
	figureOverUncompressed = "records a second over uncompressed frames"

	figureOverLines = "records a second over whole lines"
	figureOverArrow = "records a second over all records in arrow"

	figureOverChecksums = "records a second over crc32c"

	figureOverPair = "records a second over one pair"

	figureRead     = "records a second, only read"
	figureReplayed = "records a second, only replayed"

	figureLatency    = "stored to stored"
	figureLatencyP99 = "stored to stored p99"
)

// columns are the columns that only this suite has.
var columns = []bench.Column{
	{Title: "pairs", Legend: "pairs of streams", Cell: pairsCell, Distinguishes: true},
	{Title: "framing", Legend: "MILLRACE_FRAMING; without one, a message is one record", Cell: func(r report.Row) string { return r.Framing }, Distinguishes: true},
	{Title: "compression", Cell: func(r report.Row) string { return r.Compression }, Distinguishes: true},
	{Title: "field", Legend: "MILLRACE_FIELD; without one, operators process whole records", Cell: func(r report.Row) string { return r.Field }},
	{Title: "results", Legend: "MILLRACE_RESULT_FORMAT", Cell: func(r report.Row) string { return r.Results }, Distinguishes: true},
	{Title: "filter", Legend: "MILLRACE_FILTER", Cell: func(r report.Row) string { return r.Filter }},
	{
		Title: "records/s (p10-p90)", Cell: bench.SpreadCell(figureRecords, bench.Number),
		Legend: "from before the first delivery until every result is stored and the server has every acknowledgement",
	},
	{Title: "MB/s", Legend: "bytes of records", Cell: bench.FigureCell(figureBytes, megabytes)},
	{Title: "wire MB/s", Legend: "bytes of messages, compressed and with their framing", Cell: bench.FigureCell(figureWire, megabytes)},
	{Title: "ratio", Legend: "bytes of records over bytes of messages", Cell: bench.FigureCell(figureCompression, bench.Number)},
	bench.CoresColumn,
	{Title: "a batch", Legend: "records per batch of results that are stored at once", Cell: bench.FigureCell(figureFill, bench.Number)},
	{Title: "x null", Legend: "records/s over those of the null worker with the same messages", Cell: bench.FigureCell(figureOverNull, bench.Number)},
	{Title: "x go", Legend: "records/s over those of go-worker with the same operators and messages", Cell: bench.FigureCell(figureOverPlain, bench.Number)},
	{Title: "x single", Legend: "records/s over those of the same worker with one record per message", Cell: bench.FigureCell(figureOverSingle, bench.Number)},
	{Title: "x uncompressed", Legend: "records/s over those of the same worker with uncompressed frames", Cell: bench.FigureCell(figureOverUncompressed, bench.Number)},
	{Title: "x lines", Legend: "records/s over those of the same worker with whole lines as records", Cell: bench.FigureCell(figureOverLines, bench.Number)},
	{Title: "x arrow", Legend: "records/s over those of the same worker with the results of all records in Arrow", Cell: bench.FigureCell(figureOverArrow, bench.Number)},
	{Title: "x crc32c", Legend: "records/s over those of crc32c with the same messages", Cell: bench.FigureCell(figureOverChecksums, bench.Number)},
	{Title: "x one pair", Legend: "records/s over those of the same worker with one pair of streams", Cell: bench.FigureCell(figureOverPair, bench.Number)},
	{Title: "read/s", Legend: "records of a state's log that are read from the stream, without replaying them", Cell: bench.FigureCell(figureRead, bench.Number)},
	{Title: "replayed/s", Legend: "records of a state's log that are replayed from memory", Cell: bench.FigureCell(figureReplayed, bench.Number)},
	{Title: "p50 us", Legend: "from when the server has stored a payload until it has stored the result", Cell: bench.FigureCell(figureLatency, bench.Micros)},
	{Title: "p99 us", Cell: bench.FigureCell(figureLatencyP99, bench.Micros)},
}

// pairsCell is empty in rows that don't vary the number of pairs.
func pairsCell(r report.Row) string {
	if r.Streams == 0 {
		return ""
	}
	return strconv.Itoa(r.Streams)
}

func megabytes(v float64) string { return bench.Number(v / 1e6) }

// operatorLists are the lists of operators to measure. Rows with frames use only the first list.
var operatorLists = []string{"crc32c", "crc32c,minhash"}

// payloadSizes are the default sizes of payloads, in bytes.
var payloadSizes = []int{256, 2 << 10, 64 << 10, 512 << 10}

// runRates measures all workers with messages of one record, one size after another.
func (b *Bench) runRates(ctx context.Context, session *bench.Session, s *server) error {
	for _, size := range session.Sizes(payloadSizes...) {
		f := single(size)
		null := s.rate(session, b.plainKind(session, rowNull, nil), f)
		var shared, exclusive, plain []*bench.Case // one case per list of operators
		for _, list := range operatorLists {
			ops := bench.Parse(list)
			shared = append(shared, s.rate(session, b.millraceKind(session, rowShared, false, ops), f))
			exclusive = append(exclusive, s.rate(session, b.millraceKind(session, rowExclusive, true, ops), f))
			plain = append(plain, s.rate(session, b.plainKind(session, rowPlain, ops), f))
		}
		all := slices.Concat([]*bench.Case{null}, shared, exclusive, plain)
		if err := session.Measure(ctx, all...); err != nil {
			return err
		}
		for i := range plain {
			compare(null, plain[i], shared[i], exclusive[i])
		}
		session.Report(all...)
	}
	return nil
}

// compare adds the ratios of all workers to the null worker, and of Millrace to the worker in plain Go.
func compare(null, plain *bench.Case, millrace ...*bench.Case) {
	plain.Compare(figureOverNull, figureRecords, null)
	for _, c := range millrace {
		c.Compare(figureOverNull, figureRecords, null)
		c.Compare(figureOverPlain, figureRecords, plain)
	}
}

const (
	// usualFrameBytes is the size of a frame before compression.
	usualFrameBytes = 512 << 10

	// frameRecordBytes is the default size of a record in a frame.
	frameRecordBytes = 256
)

// forms are the framings and compressions to measure. Compressed frames are compared with the first form.
var forms = []form{
	{framing: frame.NewlineDelimited, format: operator.Arrow},
	{framing: frame.NewlineDelimited, format: operator.Arrow, encoding: compression.Zstd},
	{framing: frame.LengthDelimited, format: operator.Arrow},
	{framing: frame.Arrow, format: operator.Arrow},
}

// runFrames measures all workers with frames. It also measures Millrace with one record per message. It measures one
// record size after another.
func (b *Bench) runFrames(ctx context.Context, session *bench.Session, s *server) error {
	session.Note("Frames have about %d KiB before compression. Results of frames are Arrow streams, and those of single records are JSON.", b.frameBytes>>10)
	ops := bench.Parse(operatorLists[0])
	shared, exclusive := b.millraceKind(session, rowFramesShared, false, ops), b.millraceKind(session, rowFramesExclusive, true, ops)
	null, plain := b.plainKind(session, rowFramesNull, nil), b.plainKind(session, rowFramesPlain, ops)
	for _, size := range session.Sizes(frameRecordBytes) {
		alone := []*bench.Case{s.rate(session, shared, single(size)), s.rate(session, exclusive, single(size))}
		all, framed := alone, [][]*bench.Case(nil)
		for _, f := range b.forms {
			f = f.filled(size, b.frameBytes)
			cases := []*bench.Case{s.rate(session, shared, f), s.rate(session, exclusive, f), s.rate(session, null, f), s.rate(session, plain, f)}
			all, framed = append(all, cases...), append(framed, cases)
		}
		if err := session.Measure(ctx, all...); err != nil {
			return err
		}
		for i, cases := range framed {
			compare(cases[2], cases[3], cases[:2]...)
			for k, c := range alone {
				cases[k].Compare(figureOverSingle, figureRecords, c)
			}
			if b.forms[i].encoding != compression.None {
				for k, c := range cases {
					c.Compare(figureOverUncompressed, figureRecords, framed[0][k])
				}
			}
		}
		session.Report(all...)
	}
	return nil
}

// These are the bounds of a round. A round has at least one message for each partition and several for each core, so no
// core is idle. maxBytes limits the size of the input stream. On a fast server, a round with the largest payloads
// reaches this limit in two seconds. In a much shorter round, the one-time work for each partition would distort the
// figures.
const (
	messagesPerCore = 4
	maxMessages     = 1 << 20
	maxBytes        = 4 << 30
)

// rate returns a case that measures the rate of a kind of worker with messages of a form. The first round first
// determines the number of messages per pair that fit into session.Turn. The search for this number also warms up.
func (s *server) rate(session *bench.Session, k kind, f form) *bench.Case {
	minimum := max(partitions, messagesPerCore*runtime.GOMAXPROCS(0))
	streams := max(k.pairs, 1)
	maximum := min(maxMessages, max(maxBytes/(f.records*f.size), minimum*streams)) / streams
	measure := func(ctx context.Context, c *bench.Case, seed uint64) error {
		if f.documents && f.size < minDocument {
			return bench.Unable("a JSON object with a text has at least %d bytes", minDocument)
		}
		warmup := newContent(f, ^seed)
		n, err := c.Pace(session.Turn(), minimum, maximum, func(n int) (time.Duration, error) {
			r, err := s.round(ctx, k, load{content: warmup, n: n})
			return r.took, err
		})
		if err != nil {
			return err
		}
		l := load{content: newContent(f, seed), n: n}
		r, err := s.round(ctx, k, l)
		if err != nil {
			return err
		}
		seconds, records := r.took.Seconds(), float64(streams*n*f.records)
		c.Add(figureRecords, "1/s", records/seconds)
		c.Add(figureBytes, "B/s", records*float64(f.size)/seconds)
		if f.framing != frame.None {
			c.Add(figureWire, "B/s", float64(streams*n*l.bytes())/seconds)
			c.Add(figureCompression, "", float64(f.records*f.size)/float64(l.bytes()))
		}
		c.Add(bench.FigureCores, "", r.cpu.Seconds()/seconds)
		c.Add(figureFill, "", records/float64(r.batches))
		return nil
	}
	c := k.newCase(session, f.size, measure)
	f.describe(&c.Row)
	return c
}

const (
	latencyBytes = 1 << 10
	latencyEvery = time.Millisecond

	// latencyMin is the minimum number of payloads in a round, which is enough for a 99th percentile.
	latencyMin = 300
)

// runLatency measures the latency of Millrace and of the null worker.
func (b *Bench) runLatency(ctx context.Context, session *bench.Session, s *server) error {
	var all []*bench.Case
	for _, list := range operatorLists {
		all = append(all, s.latency(session, b.millraceKind(session, rowLatency, false, bench.Parse(list))))
	}
	all = append(all, s.latency(session, b.plainKind(session, rowLatencyNull, nil)))
	if err := session.Measure(ctx, all...); err != nil {
		return err
	}
	session.Report(all...)
	return nil
}

// latency returns a case that measures the latency of payloads with a kind of worker.
func (s *server) latency(session *bench.Session, k kind) *bench.Case {
	n := max(int(session.Turn()/latencyEvery), latencyMin)
	return k.newCase(session, latencyBytes, func(ctx context.Context, c *bench.Case, seed uint64) error {
		r, err := s.round(ctx, k, load{content: newContent(single(latencyBytes), seed), n: n, every: latencyEvery})
		if err != nil {
			return err
		}
		c.Add(figureLatency, "s", bench.Percentile(r.latencies, 0.5))
		c.Add(figureLatencyP99, "s", bench.Percentile(r.latencies, 0.99))
		return nil
	})
}

// kind is a kind of worker with one list of operators.
type kind struct {
	name        string
	exclusive   bool                // whether the streams are partitioned, as for exclusive delivery
	exactlyOnce bool                // whether the worker stores commit markers
	ops         []operator.Operator // nil for a worker that computes nothing
	device      bool                // whether the worker uses the devices
	pairs       int                 // number of pairs of streams; 0 means one, in rows that don't vary it
	make        func() worker       // creates the worker of one round
}

// newCase returns the case of a row of kind k. size is the size of a payload in bytes, and measure runs one round. The
// null worker's case is a reference for other cases.
func (k kind) newCase(session *bench.Session, size int, measure func(context.Context, *bench.Case, uint64) error) *bench.Case {
	r := report.Row{Name: k.name, PayloadBytes: size, Streams: k.pairs, Operator: bench.Specs(k.ops)}
	if k.device {
		r.Device, r.Lanes = session.Devices[0].Info().ID, session.Lanes
		if len(session.Devices) > 1 {
			r.Device = "all"
		}
	}
	return &bench.Case{Row: r, Reference: k.ops == nil, Measure: measure}
}

// millraceKind returns the kind that runs Millrace with shared or exclusive delivery.
func (b *Bench) millraceKind(session *bench.Session, name string, exclusive bool, ops []operator.Operator) kind {
	return kind{name: name, exclusive: exclusive, ops: ops, device: true, make: func() worker {
		return &millrace{session: session, ops: ops, stateRecords: b.stateRecords, connections: b.connections(exclusive)}
	}}
}

// plainKind returns the kind that runs a worker in plain Go. If ops is nil, the worker computes nothing.
func (b *Bench) plainKind(session *bench.Session, name string, ops []operator.Operator) kind {
	o := pipelineConfig(session, session.Devices[0].Info(), nil)
	return kind{name: name, exclusive: true, ops: ops, make: func() worker {
		return &plain{ops: ops, connections: b.connections(true), groupMessages: o.BatchPayloads, groupBytes: o.BatchBytes}
	}}
}

// connections returns the number of a worker's connections to the server.
func (b *Bench) connections(exclusive bool) int {
	if b.o.Connections != 0 {
		return b.o.Connections
	}
	return natsconn.DefaultConnections(exclusive)
}
