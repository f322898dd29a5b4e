package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/config"
	"millrace/internal/plan"
)

// planFlags holds the flags of `worker plan`.
type planFlags struct {
	set    map[string]bool // the names of the flags that are set
	model  string
	stages string
	bytes  string
	file   string

	batches, chunks, lanes int
	host                   time.Duration
	json                   bool
}

// planCommand returns `worker plan`.
func planCommand() *cobra.Command {
	p := &planFlags{set: map[string]bool{}}
	c := &cobra.Command{
		Use: "plan", Short: "predict how long a schedule takes, in slots or from measurements",
		Long: "Predicts how long a schedule takes. It runs the worker's pipelines on a simulated device with a virtual clock. Without --fit it shows " +
			"batches, or the chunks of one payload, slot by slot, without and with overlap. With --fit it fits a model to measurements, and predicts " +
			"other lane counts and batch sizes.",
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Flags().Visit(func(f *pflag.Flag) { p.set[f.Name] = true })
			return runPlan(cmd.Context(), p)
		},
	}
	f := c.Flags()
	f.StringVar(&p.model, "model", "batches", "what overlaps: batches, or the chunks of one payload")
	f.IntVar(&p.batches, "batches", 4, fmt.Sprintf("the number of batches, 1 to %d", plan.MaxBatches))
	f.IntVar(&p.chunks, "chunks", 4, fmt.Sprintf("the number of chunks of the payload, 1 to %d; with --model chunks", plan.MaxBatches))
	f.StringVar(&p.stages, "stages", "1,1,1", "how many `units` of time copy in, compute and copy out take")
	f.IntVar(&p.lanes, "lanes", 0, "the number of lanes of the pipelined schedule; 0: one per batch")
	f.StringVar(&p.file, "fit", "", "predict from the measurements in this `file`: a report of worker bench --json, or a trace")
	f.StringVar(&p.bytes, "bytes", "", "more batch `sizes` to predict, like 256KiB,4MiB; with --fit")
	f.DurationVar(&p.host, "host", 0, "the time that the host takes to submit a batch, like 8us; with --fit; 0: fitted")
	f.BoolVar(&p.json, "json", false, "print JSON, for programs")
	complete(c, "model", "batches", "chunks")
	return c
}

// runPlan implements `worker plan`.
func runPlan(ctx context.Context, p *planFlags) error {
	if err := p.check(); err != nil {
		return usageError{fmt.Errorf("plan: %w: see worker plan -h", err)}
	}
	if p.file != "" {
		return p.runFit(ctx)
	}
	c, err := p.runTextbook(ctx)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(os.Stdout, c)
	}
	return c.Write(os.Stdout)
}

// check returns every conflict between the flags.
func (p *planFlags) check() error {
	var errs []error
	needs := func(name string, ok bool, what string) {
		if p.set[name] && !ok {
			errs = append(errs, fmt.Errorf("--%s is %s", name, what))
		}
	}
	if p.model != "batches" && p.model != "chunks" {
		errs = append(errs, fmt.Errorf("--model is %q: use batches or chunks", p.model))
	}
	fit := p.set["fit"]
	for _, name := range []string{"model", "batches", "chunks", "stages", "lanes"} {
		needs(name, !fit, "not for --fit, which reads everything from its file")
	}
	needs("fit", p.file != "", "empty: name a file")
	needs("bytes", fit, "only for --fit")
	needs("host", fit, "only for --fit")
	needs("chunks", fit || p.model == "chunks", "only for --model chunks")
	needs("batches", fit || p.model != "chunks", "not for --model chunks: use --chunks")
	if p.host < 0 || p.host > time.Minute {
		errs = append(errs, fmt.Errorf("--host is %v: use 0 to 1m", p.host))
	}
	return errors.Join(errs...)
}

// runTextbook compares the schedules of batches or chunks slot by slot.
func (p *planFlags) runTextbook(ctx context.Context) (plan.Comparison, error) {
	stages, err := parseStages(p.stages)
	if err != nil {
		return plan.Comparison{}, usageError{err}
	}
	planned := plan.Textbook{Batches: p.batches, Stages: stages, Lanes: p.lanes}
	if p.model == "chunks" {
		planned.Batches, planned.Chunked = p.chunks, true
	}
	if err := planned.Check(); err != nil {
		return plan.Comparison{}, usageError{fmt.Errorf("plan: %w", err)}
	}
	return planned.Run(ctx)
}

// parseStages parses "2,3,1".
func parseStages(text string) (stages [3]float64, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != len(stages) {
		return stages, fmt.Errorf("plan: --stages is %q: give three numbers, for copy in, compute and copy out, like 2,3,1", text)
	}
	for i, part := range parts {
		if stages[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil {
			return stages, fmt.Errorf("plan: --stages is %q, and %q is not a number: give three numbers, like 2,3,1", text, part)
		}
	}
	return stages, nil
}

// parseSizes parses "256KiB,4MiB" and returns the sizes in bytes, sorted. It returns none for an empty text.
func parseSizes(text string) (sizes []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var size config.Size
		if err := size.UnmarshalText([]byte(part)); err != nil || size < 1 || size > plan.MaxBatchBytes {
			return nil, fmt.Errorf("plan: --bytes has %q: use sizes of 1 to %d bytes, like 256KiB,4MiB", part, plan.MaxBatchBytes)
		}
		sizes = append(sizes, int(size))
	}
	if len(sizes) > plan.MaxSizes {
		return nil, fmt.Errorf("plan: --bytes has %d sizes: give at most %d", len(sizes), plan.MaxSizes)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// writeJSON writes v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// runFit fits a model to the measurements in a file and prints its predictions.
func (p *planFlags) runFit(ctx context.Context) error {
	sizes, err := parseSizes(p.bytes)
	if err != nil {
		return usageError{err}
	}
	workloads, err := loadWorkloads(p.file)
	if err != nil {
		return err
	}
	var forecasts []plan.Forecast
	for _, w := range workloads {
		f, err := plan.Fit(ctx, w, p.host)
		if err != nil {
			return err
		}
		o, err := plan.Predict(ctx, w, f, sizes)
		if err != nil {
			return err
		}
		forecasts = append(forecasts, o)
	}
	if p.json {
		return writeJSON(os.Stdout, forecasts)
	}
	return printForecasts(os.Stdout, forecasts)
}

// loadWorkloads reads the workloads of a report or a trace.
func loadWorkloads(name string) ([]plan.Workload, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("plan: --fit: %w", err)
	}
	defer func() { _ = f.Close() }() // the file is only read
	workloads, err := plan.Load(f)
	if err != nil {
		return nil, fmt.Errorf("plan: --fit %s: %w", name, err)
	}
	return workloads, nil
}
