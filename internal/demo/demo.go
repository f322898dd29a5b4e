package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/console"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/memory"
	"millrace/internal/streams"
	"millrace/internal/textframes"
)

// Options holds the settings of the demo.
type Options struct {
	URL      string // URL of the server
	Payloads int
	Seed     uint64
	Frames   Frames // format of the messages

	// NearDuplicates is the share of texts that are near-duplicates of earlier ones, 0 to 0.95.
	NearDuplicates float64
	StateRecords   int // number of records of a generation of states; only with a stateful operator, which needs one partition

	InputPrefixes    []string // first tokens of the input subjects; documents go to each in turn
	ResultStream     string
	ResultPrefix     string
	DeadLetterPrefix string
	memory.Messages  // the worker's operators, and the formats of its messages and results

	Out   io.Writer
	Bar   bool // whether to draw a progress bar
	Width int  // width of the terminal, in columns
}

// Demo is one run of the demo. The producer and the checker have separate connections.
type Demo struct {
	o        Options
	producer *producer
	checker  *checker
	started  time.Time
	took     time.Duration
}

// New connects the producer and the checker to the server.
func New(o Options) (*Demo, error) {
	docs := &source{newTexts(o.Seed, o.Frames, o.NearDuplicates), o.Messages, textframes.NewVerdicts(o.Operators, o.StateRecords)}
	docs.Split.Framing = o.Frames.Framing
	in, err := nats.Connect(o.URL, nats.Name("millrace-demo-producer"))
	if err != nil {
		return nil, fmt.Errorf("demo: producer: %w", err)
	}
	out, err := nats.Connect(o.URL, nats.Name("millrace-demo-checker"))
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("demo: checker: %w", err)
	}
	js, err := jsapi.API{}.New(out)
	if err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("demo: checker: %w", err)
	}
	return &Demo{
		o:        o,
		producer: &producer{nc: in, docs: docs, encoding: o.Frames.Encoding, payloads: o.Payloads, prefixes: o.InputPrefixes},
		checker: &checker{
			js: js, docs: docs, payloads: o.Payloads, stream: o.ResultStream,
			filters: []string{o.ResultPrefix + ".>", o.DeadLetterPrefix + ".>"},
			seen:    make([]uint8, o.Payloads), parts: map[int][]jetstream.Msg{}, stall: stallLimit,
		},
	}, nil
}

// Close closes both connections.
func (d *Demo) Close() {
	d.producer.nc.Close()
	d.checker.js.Conn().Close()
}

// Run produces and checks documents while a worker runs. It returns when every document is stored and every result is
// checked, or when producing or reading fails. Its error also reports wrong results.
func (d *Demo) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.started = time.Now()
	d.checker.started = d.started
	stop := d.showProgress()
	var produced, checked error
	var wg sync.WaitGroup
	wg.Go(func() {
		if produced = d.producer.run(ctx); produced != nil {
			cancel()
		}
	})
	wg.Go(func() {
		// Only an error stops the producer. The last result can arrive before the server has confirmed the last document.
		if checked = d.checker.run(ctx); checked != nil {
			cancel()
		}
	})
	wg.Wait()
	d.took = time.Since(d.started)
	stop()
	if produced != nil && !errors.Is(produced, context.Canceled) {
		return produced
	}
	return checked
}

// Surplus returns an error if the result stream holds more than one result per document. Call it after the worker has
// stopped.
func (d *Demo) Surplus(ctx context.Context) error {
	n, err := d.checker.surplus(ctx)
	if err == nil && n != 0 {
		err = fmt.Errorf("the result stream holds %d more messages than there are documents", n)
	}
	return err
}

// Verified returns the number of documents with a correct result.
func (d *Demo) Verified() int { return int(d.checker.verified.Load()) }

// Framed reports whether messages hold several records.
func (d *Demo) Framed() bool { return d.o.Frames.Framing != frame.None }

// Records returns the number of records in each message.
func (d *Demo) Records() int { return d.producer.docs.Records }

// showProgress redraws the progress bar until the caller calls stop.
func (d *Demo) showProgress() (stop func()) {
	if !d.o.Bar {
		return func() {}
	}
	return console.Redraw(d.o.Out, d.progress)
}

func (d *Demo) progress(time.Duration) string {
	count, state, payloads := d.checker.verified.Load(), "verified", int64(d.o.Payloads)
	if stored := d.checker.stored.Load(); count == 0 && stored > 0 {
		count, state = min(stored, payloads), "stored"
	}
	text := fmt.Sprintf(" %s of %s %s, %s/s", console.Count(count), console.Count(payloads), state,
		console.Count(int64(float64(count)/max(time.Since(d.started).Seconds(), 1e-9))))
	return console.Bar(count, payloads, max(d.o.Width-len(text)-4, 10)) + text
}

// Report prints the closing tables: the totals, and the duration of each stage. batchBytes is the maximum size of a
// batch.
func (d *Demo) Report(p *Profile, pipes []streams.Stats, batchBytes int) error {
	if err := console.Table(d.o.Out, d.totals(p, pipes, batchBytes)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(d.o.Out); err != nil {
		return err
	}
	return console.Table(d.o.Out, stageRows(p))
}

func (d *Demo) totals(p *Profile, pipes []streams.Stats, batchBytes int) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	working := time.Duration(d.checker.storedAfter.Load())
	if working == 0 {
		working = d.took // all results were checked before awaitStored checked the stream
	}
	rows := [][]string{{"total", ""}}
	if d.Verified() == d.o.Payloads {
		rows = append(rows, d.rates(working)...)
	} else {
		working = time.Since(d.started) // the worker may have processed payloads after Run returned
		rows = append(rows, []string{"payloads verified", console.Count(int64(d.Verified())) + " of " + console.Count(int64(d.o.Payloads))},
			[]string{"until it ended", console.Time(working)})
	}
	if p.batches > 0 {
		mean := float64(p.bytes) / float64(p.batches)
		rows = append(rows,
			[]string{"batches", console.Count(int64(p.batches))},
			[]string{"payloads a batch", fmt.Sprintf("%.1f", float64(p.payloads)/float64(p.batches))},
			[]string{"bytes a batch", console.Bytes(mean)},
			[]string{"batch fill", fmt.Sprintf("%.1f %%", 100*mean/float64(batchBytes))})
		for why, n := range p.closed {
			rows = append(rows, []string{"closed by " + streams.CloseReason(why).String(), console.Count(int64(n))})
		}
	}
	for _, s := range pipes {
		rows = append(rows,
			[]string{"device", s.Device},
			[]string{"device busy", console.Share(s.Busy, working)},
			[]string{"overlap, of busy", console.Share(s.Overlap, s.Busy)})
		for e, busy := range s.Engines {
			rows = append(rows, []string{streams.Engine(e).String() + " busy", console.Share(busy, working)})
		}
		rows = append(rows,
			[]string{"pinned memory", console.Bytes(float64(s.Pinned))},
			[]string{"scratch, most at once", console.Bytes(float64(s.Scratch.HighWater))})
	}
	return rows
}

// rates returns the rows of a complete demo. working is the time until all results were stored.
func (d *Demo) rates(working time.Duration) [][]string {
	seconds := working.Seconds()
	in, out := d.producer.bytes.Load(), d.checker.bytes.Load()
	rows := [][]string{
		{"payloads", console.Count(int64(d.o.Payloads))},
		{"payload bytes", console.Bytes(float64(in))},
	}
	if wire := d.producer.wire.Load(); wire != in {
		rows = append(rows, []string{"compressed", console.Bytes(float64(wire))})
	}
	if d.Framed() {
		records := int64(d.o.Payloads * d.Records())
		rows = append(rows,
			[]string{"records", console.Count(records)},
			[]string{"records a second", console.Count(int64(float64(records) / seconds))})
	}
	if d.o.Filter != nil {
		kept := d.checker.records.Load()
		rows = append(rows,
			[]string{"records kept", console.Count(kept)},
			[]string{"records left out by the filter", console.Count(int64(d.o.Payloads*d.Records()) - kept)})
	}
	return append(rows, [][]string{
		{"result bytes", console.Bytes(float64(out))},
		{"until all results were stored", console.Time(working)},
		{"until all were checked", console.Time(d.took)},
		{"payloads a second", console.Count(int64(float64(d.o.Payloads) / seconds))},
		{"bytes a second", console.Bytes(float64(in)/seconds) + "/s"},
	}...)
}

func stageRows(p *Profile) [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	rows := [][]string{{"stage of a batch", "p50", "p95", "p99"}}
	for s := range inflight.NumStages {
		rows = append(rows, []string{s.String(), console.Time(p.quantile(s, .5)), console.Time(p.quantile(s, .95)), console.Time(p.quantile(s, .99))})
	}
	return rows
}
