package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/internal/bench"
	"millrace/internal/bench/broker"
	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device"
	"millrace/internal/device/host"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/telemetry"
)

// benchFlags holds the flags and groups of `worker bench`. Flags that need no translation are in Options.
type benchFlags struct {
	bench.Options
	list    bool
	json    string
	trace   string
	profile string
	sizes   string
	rows    string
	seconds float64
	server  string
	storage string
}

const benchAbout = `Measures devices and pipelines. The groups are %s, and all, which is the default.

The rows of a comparison take turns, on fresh random data. A wrong result ends the run with exit status 1. MILLRACE_DEVICE and
MILLRACE_DEVICES choose the devices. The group nats measures the way from stream to stream, for Millrace, for a worker that computes nothing,
and for a worker in plain Go.`

func benchCommand() *cobra.Command {
	b := &benchFlags{}
	groups := bench.Groups(broker.New(broker.Options{}).Suite())
	c := &cobra.Command{
		Use: "bench [GROUP]...", Short: "measure devices and pipelines", Long: fmt.Sprintf(benchAbout, strings.Join(groups, ", ")),
		ValidArgs: append(groups, "all"), Args: cobra.ArbitraryArgs, // options checks the arguments
		RunE: func(cmd *cobra.Command, args []string) error {
			b.Groups = args
			return runBench(cmd.Context(), b)
		},
	}
	f := c.Flags()
	f.BoolVar(&b.list, "list", false, "list every row and what it shows, without measuring")
	f.StringVar(&b.json, "json", "", "write all figures to this `file`, for programs")
	f.StringVar(&b.trace, "trace", "", "write the timelines of the measured pipelines to this `file`, for Perfetto or chrome://tracing")
	f.StringVar(&b.profile, "cpuprofile", "", "write a CPU profile to this `file`, for go tool pprof")
	f.StringVar(&b.Yardstick, "yardstick", "", "the baseline `program` to compare with; default: the file yardstick beside the kernel library or the worker")
	f.StringVar(&b.sizes, "bytes", "", "batch `sizes`, like 1MiB,16MiB (the default on a GPU; 256KiB,1MiB on a CPU, less for minhash); for nats, payload sizes (256,2KiB,64KiB,512KiB)")
	f.StringVar(&b.rows, "row", "", "measure only the rows with these `names`, separated by commas: triple, or schedules/triple")
	f.IntVar(&b.Rounds, "rounds", bench.DefaultRounds, "how often to measure each row, in turn with the others")
	f.Float64Var(&b.seconds, "seconds", bench.DefaultBudget.Seconds(), "how long to measure each row, all rounds together")
	f.IntVar(&b.Lanes, "lanes", 0, "streams in flight; 0: MILLRACE_LANES")
	f.Uint64Var(&b.Seed, "seed", 0, "the seed of the random data; 0: a new one each time")
	f.StringVar(&b.server, "server", "", "for nats, the `URL` of a running server with JetStream; default: the bench starts one in a separate process. The bench creates streams called MILLRACE_BENCH_* there and removes them")
	f.StringVar(&b.storage, "storage", "file", "for nats, the storage of the streams: `file` or memory")
	complete(c, "storage", "file", "memory")
	return c
}

// options checks the flags and returns them as bench.Options. The error names every problem.
func (b *benchFlags) options() (bench.Options, error) {
	o := b.Options
	var errs []error
	o.Budget = time.Duration(b.seconds * float64(time.Second))
	if b.sizes != "" {
		for text := range strings.SplitSeq(b.sizes, ",") {
			var size config.Size
			if err := size.UnmarshalText([]byte(text)); err != nil {
				errs = append(errs, fmt.Errorf("--bytes has %q: give sizes as 1MiB,16MiB", text))
			}
			if size > 0 {
				o.Bytes = append(o.Bytes, int(size))
			}
		}
	}
	if b.rows != "" {
		for name := range strings.SplitSeq(b.rows, ",") {
			o.Rows = append(o.Rows, strings.TrimSpace(name))
		}
	}
	if slices.Contains(o.Groups, "all") {
		o.Groups = nil
	}
	if b.storage != "file" && b.storage != "memory" {
		errs = append(errs, fmt.Errorf("--storage is %q: give file or memory", b.storage))
	}
	nats := broker.New(broker.Options{}).Suite()
	o.Suites = []bench.Suite{nats}
	if !embedded.Included && b.server == "" && o.Measures(nats.Name) {
		errs = append(errs, fmt.Errorf("%w: name a running server with --server, or name the groups to measure without %s", embedded.ErrLeftOut, nats.Name))
	}
	return o, errors.Join(append(errs, o.Check())...)
}

func runBench(ctx context.Context, b *benchFlags) (err error) {
	if b.list {
		return listBench(os.Stdout)
	}
	o, err := b.options()
	if err != nil {
		return usageError{fmt.Errorf("bench: %w", err)}
	}
	cfg, err := config.Load(findOperators)
	if err != nil {
		return err
	}
	out := benchOutput{}
	defer func() { err = errors.Join(err, out.close()) }()
	if err := out.create(b); err != nil {
		return err
	}
	o.Command, o.Commit = "worker "+strings.Join(os.Args[1:], " "), build().Commit
	if o.Lanes == 0 {
		o.Lanes = cfg.Lanes
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	o.Out, o.Progress = os.Stdout, showMeasurement
	program, err := benchServerProgram()
	if err != nil {
		return err
	}
	streamed := broker.New(broker.Options{
		Server: natsServer(cfg, b.server), API: jsapi.API{Domain: cfg.NATS.JS.Domain, Prefix: cfg.NATS.JS.Prefix}, Program: program,
		Connections: cfg.NATS.Connections, Memory: b.storage == "memory",
	})
	o.Suites = []bench.Suite{streamed.Suite()}
	defer func() { err = errors.Join(err, streamed.Close()) }()
	o.Pipeline = func(d device.Info, ops []operator.Operator) streams.Options { return pipelineConfig(cfg, d, ops, nil) }
	return out.measure(ctx, cfg, o)
}

// showMeasurement overwrites the last line of the terminal with the current measurement, if standard error is a terminal.
func showMeasurement(doing string) {
	if console.Redraws(os.Stderr) {
		_, _ = fmt.Fprintf(os.Stderr, "\r\033[K%s\r", doing)
	}
}

// listBench writes one line for each row.
func listBench(w io.Writer) error {
	if _, err := fmt.Fprintln(w, "group       row"); err != nil {
		return err
	}
	for _, e := range bench.List(broker.New(broker.Options{}).Suite()) {
		if _, err := fmt.Fprintf(w, "%-11s %-20s %s\n", e.Group, e.Name, e.Shows); err != nil {
			return err
		}
	}
	return nil
}

// benchOutput holds the files that a run writes. They are created before the run, so an unwritable file fails early.
type benchOutput struct{ json, trace, profile *os.File } // nil for none

// benchTimeline is the number of batches in a trace. It is enough for dozens of batches of each row.
const benchTimeline = 1 << 15

// create creates the files that the flags name.
func (out *benchOutput) create(b *benchFlags) (err error) {
	for _, f := range []struct {
		flag, name string
		file       **os.File
	}{
		{"json", b.json, &out.json}, {"trace", b.trace, &out.trace}, {"cpuprofile", b.profile, &out.profile},
	} {
		if f.name == "" {
			continue
		}
		if *f.file, err = os.Create(f.name); err != nil {
			return fmt.Errorf("bench: --%s: %w", f.flag, err)
		}
	}
	return nil
}

func (out *benchOutput) close() error {
	var errs []error
	for _, f := range []*os.File{out.json, out.trace, out.profile} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// measure opens the devices, measures, and writes the files. After an error, the files have the earlier measurements.
func (out *benchOutput) measure(ctx context.Context, cfg *config.Config, o bench.Options) (err error) {
	if o.Devices, _, err = openDevicesOr(cfg, newLogger(cfg), openBenchHost); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDevices(o.Devices)) }()
	if o.Yardstick == "" {
		o.Yardstick = findYardstick(cfg, o.Devices)
	}
	var timeline *telemetry.Timeline
	if out.trace != nil {
		timeline = telemetry.NewTimeline(benchTimeline)
		o.Trace = timeline
	}
	printBenchDevices(o)
	if out.profile != nil {
		if err := pprof.StartCPUProfile(out.profile); err != nil {
			return fmt.Errorf("bench: --cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile() // before the file is closed
	}
	r, err := bench.Run(ctx, o)
	if out.json != nil {
		err = errors.Join(err, writeJSON(out.json, r))
	}
	if out.trace != nil {
		err = errors.Join(err, timeline.WriteTrace(out.trace, 0))
	}
	return err
}

func printBenchDevices(o bench.Options) {
	for _, d := range o.Devices {
		i := d.Info()
		fmt.Printf("device %s (%s)", i.ID, i.Name)
		if i.Driver != "" {
			fmt.Printf(", driver %s, runtime %s", i.Driver, i.Runtime)
		}
		fmt.Printf(", commit %s, seed %d, %d rounds, %v per row\n", o.Commit, o.Seed, o.Rounds, o.Budget)
		if i.Kind == "host" {
			fmt.Println("NO GPU: THESE ARE THE CPU'S FIGURES. They show that everything runs, but not how fast a GPU is.")
			fmt.Println("Batches are copied as on a GPU, except in the groups completion, latency and nats. A worker on a CPU does not copy batches.")
		}
	}
	if !o.Measures("schedules") && !o.Measures("streams") {
		return
	}
	if o.Yardstick == "" {
		fmt.Println("There is no baseline program: speedups are over our own serial schedule, not over plain CUDA.")
	} else {
		fmt.Printf("Speedups are over the serial schedule of the baseline program, plain CUDA C++: %s\n", o.Yardstick)
	}
}

// openBenchHost opens the CPU device with additional kernels that only the bench has. It sets no memory limit, because
// some rows have many lanes.
func openBenchHost(*config.Config) (device.Device, error) {
	return host.Open(host.Options{Kernels: append(operator.HostKernels(), bench.HostKernels()...)})
}

// findYardstick returns the path of the baseline program beside the kernel library or the worker. It returns "" without
// such a program or without a GPU.
func findYardstick(cfg *config.Config, devices []device.Device) string {
	if devices[0].Info().Kind != "cuda" {
		return ""
	}
	var places []string
	if cfg.Kernels != "" {
		places = append(places, filepath.Dir(cfg.Kernels))
	}
	if executable, err := os.Executable(); err == nil {
		places = append(places, filepath.Dir(executable))
	}
	for _, place := range places {
		path := filepath.Join(place, "yardstick")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
