package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/demo"
	"millrace/internal/frame"
	"millrace/internal/ingest"
	"millrace/internal/ingest/embedded"
	"millrace/internal/operator"
	"millrace/internal/operator/userops"
)

// Defaults of `worker demo`. With these defaults, the demo takes less than a minute on a CPU or a GPU.
const (
	demoPayloadsHost = 3000
	demoPayloadsGPU  = 200000
	demoDebugAddr    = "127.0.0.1:6060"
	maxDemoStreams   = 64
)

type demoFlags struct {
	payloads, streams         int
	seed                      uint64
	body                      bodyFlags
	field                     string
	recordBytes, frameRecords int
	nearDuplicates            float64
	timeline                  string
	keep                      bool
}

func demoCommand() *cobra.Command {
	f := &demoFlags{}
	c := &cobra.Command{
		Use: "demo", Short: "run everything on this machine, and check every result",
		Long: "Runs the whole pipeline on this machine: a NATS server in this process, a producer of documents at full speed, the worker, and a client " +
			"that checks every result against the reference. Exit status 0 only if every payload came back exactly once with the right result. On a CPU the demo " +
			"copies batches as a GPU does. `worker run` does not.",
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), f) },
	}
	c.Flags().IntVar(&f.payloads, "payloads", 0, "how many documents or frames; 0: 3000 documents or 30 frames on a CPU, 200000 or 2000 on a GPU")
	c.Flags().IntVar(&f.streams, "streams", 1, "how many input streams one worker reads, 1 to 64")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the seed of the documents")
	f.body.add(c, "send frames, which are messages of many records of text,")
	c.Flags().StringVar(&f.field, "field", "", "send JSON objects with an id and with the text in the member of this `name`, as MILLRACE_FIELD reads it")
	c.Flags().IntVar(&f.recordBytes, "record-bytes", demo.DefaultRecordBytes, "the mean size of a record in a frame")
	c.Flags().IntVar(&f.frameRecords, "frame-records", 0, "how many records a frame has; 0: as many as make 512 KiB")
	c.Flags().Float64Var(&f.nearDuplicates, "near-duplicates", 0, "make this `share` of the texts near-duplicates of earlier ones, 0 to 0.95. Unless variables say "+
		"otherwise, the operator neardup finds them, and results are the JSON objects that aren't left out as duplicates")
	c.Flags().StringVar(&f.timeline, "timeline", "", "write the timeline of the last batches to this `file`, for Perfetto or chrome://tracing")
	c.Flags().BoolVar(&f.keep, "keep", false, "keep worker, server and timeline page running after the table, until Ctrl-C")
	return c
}

func runDemo(ctx context.Context, f *demoFlags) (err error) {
	if err := f.check(); err != nil {
		return usageError{fmt.Errorf("demo: %w", err)}
	}
	if f.nearDuplicates > 0 {
		f.deduplicate()
	}
	f.nameStreams()
	frames := demo.Frames{RecordBytes: f.recordBytes, Records: f.frameRecords}
	frames.Framing, frames.Encoding, err = f.body.parse()
	if err = errors.Join(err, frames.Check()); err != nil {
		return usageError{fmt.Errorf("demo: %w", err)}
	}
	cfg, err := demoConfig()
	if err == nil {
		err = errors.Join(f.checkField(cfg, frames.Framing), checkStateful(cfg))
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "millrace-demo-")
	if err != nil {
		return fmt.Errorf("demo: create a folder for the server's files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	outliveReaders()
	log := newLogger(cfg)
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	a := newApp(cfg, log)
	profile := &demo.Profile{}
	a.extra, a.copies = profile, true
	a.adjust = func(o *ingest.Options) {
		o.Split = frame.Splitter{
			Framing: frames.Framing, Field: f.field, Keep: o.Split.Keep, Annotate: o.Split.Annotate,
			MaxRecords: frame.DefaultMaxRecords, MaxBytes: frame.DefaultMaxBytes,
		}
		o.Decompress = frames.Encoding
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.start(ctx, "127.0.0.1:0", dir); err != nil {
		return interrupted(ctx, err)
	}
	payloads := f.payloads
	if payloads == 0 {
		payloads = a.demoPayloads(frames)
	}
	o := a.demoOptions(payloads, f.seed)
	o.Frames, o.NearDuplicates = frames, f.nearDuplicates
	d, err := demo.New(o)
	if err != nil {
		return err
	}
	defer d.Close()
	return a.runDemo(ctx, d, f.keep, func() error { return a.report(ctx, d, profile, payloads, f.timeline) })
}

// check checks the numbers.
func (f *demoFlags) check() error {
	switch {
	case f.payloads < 0 || f.payloads > 1e9:
		return fmt.Errorf("--payloads is %d, want 1 to 1000000000, or 0 for the default", f.payloads)
	case f.streams < 1 || f.streams > maxDemoStreams:
		return fmt.Errorf("--streams is %d, want 1 to %d", f.streams, maxDemoStreams)
	case f.streams > 1 && os.Getenv("MILLRACE_DELIVERY") == "exclusive":
		return errors.New("--streams is for shared delivery, because the checker reads one result stream: unset MILLRACE_DELIVERY")
	}
	return demo.CheckShare(f.nearDuplicates)
}

// deduplicate sets variables that the user has not set. The results are then the documents without an earlier near-duplicate.
func (f *demoFlags) deduplicate() {
	for _, d := range []struct{ name, value string }{
		{"MILLRACE_DELIVERY", "exclusive"}, {"MILLRACE_PARTITIONS", "1"}, {"MILLRACE_OPERATORS", "neardup"},
		{"MILLRACE_RESULT_FORMAT", "annotated"}, {"MILLRACE_FILTER", "neardup.duplicate_of == null"},
	} {
		if _, ok := os.LookupEnv(d.name); !ok {
			_ = os.Setenv(d.name, d.value) // the name and the value are valid
		}
	}
	if f.field == "" && os.Getenv("MILLRACE_RESULT_FORMAT") == "annotated" {
		f.field = "text"
	}
}

// nameStreams names the input streams, unless there is only one. Their results are in one stream.
func (f *demoFlags) nameStreams() {
	if f.streams == 1 {
		return
	}
	var names []string
	for i := range f.streams {
		names = append(names, fmt.Sprintf("INGEST-%d", i+1))
	}
	_ = os.Setenv("MILLRACE_STREAM", strings.Join(names, ",")) // the name and the value are valid
}

// checkStateful returns an error if an operator is stateful and there are several partitions. The checker reads results in the order of the
// inputs.
func checkStateful(cfg *config.Config) error {
	if operator.HasState(cfg.ParsedOperators()) && cfg.Partitions != 1 {
		return usageError{fmt.Errorf("demo: the checker of %s reads results in the order of the inputs: set MILLRACE_PARTITIONS=1", cfg.Operators)}
	}
	return nil
}

// checkField checks the flag --field, and the settings that need it.
func (f *demoFlags) checkField(cfg *config.Config, framing frame.Framing) error {
	need := func(what string) error {
		return usageError{fmt.Errorf("demo: %s needs JSON objects: add --field text", what)}
	}
	switch {
	case f.field != "" && framing == frame.Arrow:
		return usageError{errors.New("demo: --field is for JSON: use another --framing than arrow")}
	case f.field != "":
		if err := frame.CheckPath(f.field); err != nil {
			return usageError{fmt.Errorf("demo: --field: %w", err)}
		}
	case framing == frame.JSONArray:
		return need("--framing json_array")
	case cfg.ResultFormat == operator.Annotated:
		return need("MILLRACE_RESULT_FORMAT=annotated")
	case len(cfg.KeepFields) > 0:
		return need("MILLRACE_KEEP_FIELDS")
	}
	return nil
}

// demoPayloads returns the default number of messages.
func (a *app) demoPayloads(f demo.Frames) int {
	n := demoPayloadsHost
	if a.devices[0].Info().Kind == "cuda" {
		n = demoPayloadsGPU
	}
	if f.Framing != frame.None {
		n /= 100 // frames are a hundred times as large as documents
	}
	return n
}

// demoConfig returns the configuration with the demo's defaults: an embedded server, few log lines, and ports that another worker
// does not use.
func demoConfig() (*config.Config, error) {
	if !embedded.Included {
		return nil, usageError{fmt.Errorf("demo: %w, and the demo needs it: use a build without that tag", embedded.ErrLeftOut)}
	}
	cfg, err := config.Load(findOperators)
	if err != nil {
		return nil, err
	}
	if !cfg.Embedded() {
		return nil, usageError{errors.New("demo: MILLRACE_NATS_URL is set, but the demo always starts its own server: unset it")}
	}
	if err := demoRefusesFrames(cfg); err != nil {
		return nil, err
	}
	if err := userops.CheckReferences(cfg.ParsedOperators()); err != nil {
		return nil, usageError{fmt.Errorf("demo: the demo compares every result with the CPU's result: %w", err)}
	}
	if !cfg.IsSet("MILLRACE_LOG_LEVEL") {
		cfg.LogLevel = slog.LevelWarn // the demo prints the important facts itself
	}
	if !cfg.IsSet("MILLRACE_LOG_FORMAT") {
		cfg.LogFormat = "text" // a person reads the log, even without a terminal
	}
	if !cfg.IsSet("MILLRACE_HTTP_ADDR") {
		cfg.HTTPAddr = ""
	}
	if !cfg.IsSet("MILLRACE_DEBUG_ADDR") {
		cfg.DebugAddr = freeOr(demoDebugAddr)
	}
	cfg.Provision = true
	demoStreams(cfg)
	if !strings.HasSuffix(cfg.Subjects[0], ".>") {
		return nil, usageError{fmt.Errorf("demo: MILLRACE_SUBJECTS is %s, but the demo publishes on several subjects: unset it, "+
			"or use a first subject that ends in .>", cfg.Subjects)}
	}
	return cfg, nil
}

// demoRefusesFrames returns an error if the configuration sets the framing, the compression or the field of inputs, for which the demo
// has flags.
func demoRefusesFrames(cfg *config.Config) error {
	for _, v := range []struct{ variable, value, flag string }{
		{"MILLRACE_FRAMING", cfg.Framing.String(), "--framing"}, {"MILLRACE_DECOMPRESS", cfg.Decompress.String(), "--compress"}, {"MILLRACE_FIELD", cfg.Field, "--field"},
	} {
		if v.value != "none" && v.value != "auto" && v.value != "" {
			return usageError{fmt.Errorf("demo: %s is %s, but the demo makes the messages itself: unset it and use %s", v.variable, v.value, v.flag)}
		}
	}
	return nil
}

// freeOr returns addr. If another program uses addr, it returns port 0 of the same host.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		host, _, _ := net.SplitHostPort(addr)
		return net.JoinHostPort(host, "0")
	}
	_ = l.Close() // harmless without connections
	return addr
}

// demoOptions returns the options of the demo's producer and client.
func (a *app) demoOptions(payloads int, seed uint64) demo.Options {
	var prefixes []string
	for _, stream := range a.cfg.Patterns() {
		subjects := a.cfg.Subjects
		if s, err := a.cfg.Shard(stream, nil); err == nil { // an error would have ended the start
			subjects = s.Subjects
		}
		first, _, _ := strings.Cut(subjects[0], ".")
		prefixes = append(prefixes, first)
	}
	return demo.Options{
		URL: a.url, Payloads: payloads, Seed: seed, InputPrefixes: prefixes,
		ResultStream: a.cfg.ResultStream, ResultPrefix: a.cfg.ResultPrefix, DeadLetterPrefix: a.cfg.DeadletterPrefix,
		Messages: a.options.Messages, StateRecords: a.cfg.State.Records,
		Out: os.Stdout, Bar: console.Redraws(os.Stdout), Width: console.Width(os.Stdout),
	}
}

// runDemo runs the worker and the demo's clients at the same time, then prints the report. If keep is set, the worker
// runs until ctx is done.
func (a *app) runDemo(ctx context.Context, d *demo.Demo, keep bool, report func() error) error {
	info := a.devices[0].Info()
	fmt.Printf("device %s (%s), %d lanes, operators %s, server %s\n", info.ID, info.Name, a.cfg.Lanes, a.cfg.Operators, a.url)
	if a.debugURL != "" {
		fmt.Printf("watch it at %s while it runs (a larger --payloads makes it run longer)\n", a.debugURL)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- a.run(working) }()

	checking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		err := <-worked
		worked <- err
		cancel(err) // the missing results will not arrive
	}()
	failed := d.Run(checking)
	if keep && checking.Err() == nil {
		failed = errors.Join(failed, a.keepDemo(checking, d, report))
		stop()
		return errors.Join(failed, <-worked)
	}
	failed = interrupted(ctx, failed)
	stop()
	err := errors.Join(failed, <-worked)
	if err == nil {
		err = d.Surplus(ctx)
	}
	return errors.Join(err, report())
}

// report prints the tables, the timeline, and the number of verified results.
func (a *app) report(ctx context.Context, d *demo.Demo, profile *demo.Profile, payloads int, timeline string) error {
	fmt.Println()
	if ctx.Err() != nil {
		fmt.Println("interrupted: the tables show what ran until then")
	}
	errs := []error{d.Report(profile, a.stats(), int(a.cfg.BatchBytes))}
	fmt.Println()
	errs = append(errs, a.timeline.RenderGantt(os.Stdout, console.Width(os.Stdout)))
	if timeline != "" {
		errs = append(errs, a.writeTimeline(timeline))
	}
	fmt.Printf("\nverified %d of %d results", d.Verified(), payloads)
	if d.Framed() {
		fmt.Printf(", %d of %d records", d.Verified()*d.Records(), payloads*d.Records())
	}
	fmt.Println()
	if d.Verified() != payloads && ctx.Err() == nil {
		errs = append(errs, errors.New("demo: not every payload came back exactly once with the right result"))
	}
	return errors.Join(errs...)
}

// writeTimeline writes a trace of all batches in the timeline to file.
func (a *app) writeTimeline(file string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("demo: --timeline: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return a.timeline.WriteTrace(f, 0)
}

// errInterrupted is the error of a demo that a signal ended before all results had arrived.
var errInterrupted = errors.New("demo: interrupted")

// interrupted returns err, or errInterrupted if a signal ended the demo. In the second case, it also prints a line, because
// the worker may need some time to finish its batches.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "demo: interrupted: finishing the batches in flight (another Ctrl-C ends it at once)")
	return errInterrupted
}

// settleTime limits the time that keepDemo waits for the worker to settle its last batches.
const settleTime = 10 * time.Second

// keepDemo prints the report while the worker runs, and then waits until ctx is done. It writes its own output to
// standard error, so the report is the end of standard output, as without --keep.
func (a *app) keepDemo(ctx context.Context, d *demo.Demo, report func() error) error {
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	err := errors.Join(a.awaitSettled(settling), d.Surplus(settling), report())
	page := ""
	if a.debugURL != "" {
		page = "the timeline page at " + a.debugURL + " and "
	}
	send, results := exchangeCommands(a.cfg, a.url, os.Args[0])
	fmt.Fprintf(os.Stderr, "\nkept: %sthe server at %s run until Ctrl-C\nsend a payload:  %s\nsee its result:  %s\n", page, a.url, send, results)
	<-ctx.Done()
	return err
}

// awaitSettled waits until the worker holds no batch. It returns an error if ctx is done first.
func (a *app) awaitSettled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for a.worker.Status().InHand > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("demo: the worker has not settled its last batches within %v", settleTime)
		}
	}
	return nil
}
