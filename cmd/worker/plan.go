package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/config"
	"millrace/internal/plan"
)

// planFlags are the flags of worker plan.
type planFlags struct {
	set    map[string]bool // by name, those that were given
	model  string
	stages string
	bytes  string
	file   string

	batches, chunks, lanes int
	host                   time.Duration
	json                   bool
}

func runPlan(ctx context.Context, args []string) error {
	p, err := parsePlan(args)
	if err != nil {
		return err
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

func parsePlan(args []string) (*planFlags, error) {
	f := flags("plan", "Says what a schedule takes, by running the worker's own pipelines on a device with a virtual clock.\n"+
		"Without --fit it shows batches, or the chunks of one payload, slot by slot, without and with overlap. With\n"+
		"--fit it makes a model of what was measured, and predicts other lane counts and batch sizes.")
	p := &planFlags{set: map[string]bool{}}
	f.StringVar(&p.model, "model", "batches", "what is overlapped: batches, or the chunks of one payload")
	f.IntVar(&p.batches, "batches", 4, fmt.Sprintf("how many batches, 1 to %d", plan.MaxBatches))
	f.IntVar(&p.chunks, "chunks", 4, fmt.Sprintf("in how many chunks the payload is cut, 1 to %d; with --model chunks", plan.MaxBatches))
	f.StringVar(&p.stages, "stages", "1,1,1", "`units` of time that copy in, compute and copy out take")
	f.IntVar(&p.lanes, "lanes", 0, "lanes of the pipelined schedule; 0: as many as there are batches")
	f.StringVar(&p.file, "fit", "", "plan from what this `file` says: a report of worker bench --json, or a trace")
	f.StringVar(&p.bytes, "bytes", "", "further batch `sizes` to predict, as in 256KiB,4MiB; with --fit")
	f.DurationVar(&p.host, "host", 0, "the host's time on the submission of a batch, as in 8us; with --fit; 0: fitted")
	f.BoolVar(&p.json, "json", false, "print JSON, for programs")
	if err := parse(f, args); err != nil {
		return nil, err
	}
	f.Visit(func(f *flag.Flag) { p.set[f.Name] = true })
	if err := p.check(); err != nil {
		return nil, usageError{fmt.Errorf("plan: %w: see worker plan -h", err)}
	}
	return p, nil
}

// check says everything about the flags that does not go together.
func (p *planFlags) check() error {
	var errs []error
	needs := func(name string, ok bool, what string) {
		if p.set[name] && !ok {
			errs = append(errs, fmt.Errorf("--%s is %s", name, what))
		}
	}
	if p.model != "batches" && p.model != "chunks" {
		errs = append(errs, fmt.Errorf("--model is %q: take batches or chunks", p.model))
	}
	fit := p.set["fit"]
	for _, name := range []string{"model", "batches", "chunks", "stages", "lanes"} {
		needs(name, !fit, "not for --fit, which takes everything from its file")
	}
	needs("fit", p.file != "", "empty: name a file")
	needs("bytes", fit, "for --fit alone")
	needs("host", fit, "for --fit alone")
	needs("chunks", fit || p.model == "chunks", "for --model chunks alone")
	needs("batches", fit || p.model != "chunks", "not for --model chunks: it has --chunks")
	if p.host < 0 || p.host > time.Minute {
		errs = append(errs, fmt.Errorf("--host is %v: take 0 to 1m", p.host))
	}
	return errors.Join(errs...)
}

func (p *planFlags) runTextbook(ctx context.Context) (plan.Comparison, error) {
	stages, err := parseStages(p.stages)
	if err != nil {
		return plan.Comparison{}, usageError{err}
	}
	var planned interface {
		Check() error
		Run(context.Context) (plan.Comparison, error)
	} = plan.Textbook{Batches: p.batches, Stages: stages, Lanes: p.lanes}
	if p.model == "chunks" {
		planned = plan.Chunks{Chunks: p.chunks, Stages: stages, Lanes: p.lanes}
	}
	if err := planned.Check(); err != nil {
		return plan.Comparison{}, usageError{fmt.Errorf("plan: %w", err)}
	}
	return planned.Run(ctx)
}

// parseStages reads "2,3,1".
func parseStages(text string) (stages [3]float64, err error) {
	parts := strings.Split(text, ",")
	if len(parts) != len(stages) {
		return stages, fmt.Errorf("plan: --stages is %q: take three numbers, of copy in, compute and copy out, as in 2,3,1", text)
	}
	for i, part := range parts {
		if stages[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil {
			return stages, fmt.Errorf("plan: --stages is %q, and %q is no number: take three, as in 2,3,1", text, part)
		}
	}
	return stages, nil
}

// parseSizes reads "256KiB,4MiB"; an empty text is none.
func parseSizes(text string) (sizes []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		var size config.Size
		if err := size.UnmarshalText([]byte(part)); err != nil || size < 1 || size > plan.MaxBatchBytes {
			return nil, fmt.Errorf("plan: --bytes has %q: take sizes of 1 to %d bytes, as in 256KiB,4MiB", part, plan.MaxBatchBytes)
		}
		sizes = append(sizes, int(size))
	}
	if len(sizes) > plan.MaxSizes {
		return nil, fmt.Errorf("plan: --bytes has %d sizes: take %d at most", len(sizes), plan.MaxSizes)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// runFit predicts from a file.
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

func loadWorkloads(name string) ([]plan.Workload, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("plan: --fit: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	workloads, err := plan.Load(f)
	if err != nil {
		return nil, fmt.Errorf("plan: --fit %s: %w", name, err)
	}
	return workloads, nil
}
