package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"millrace/internal/console"
	"millrace/internal/plan"
)

type planFlags struct {
	model  string
	stages string

	batches, chunks, lanes int
	json                   bool

	cluster bool
	load    plan.Cluster
	figures map[string]string // values that replace figures of the cluster's plan
}

// These flags are for one kind of plan only.
var (
	scheduleFlags = []string{"model", "batches", "chunks", "stages", "lanes"}
	clusterFlags  = []string{"records", "record-bytes", "message-bytes", "compression", "result-bytes", "replicas", "peak", "retention", "operator", "figure"}
)

func planCommand() *cobra.Command {
	p := &planFlags{}
	c := &cobra.Command{
		Use: "plan", Short: "show how long a schedule takes, or what a load needs",
		Long: "Shows batches, or the chunks of one payload, slot by slot, without and with overlap. It runs the worker's pipelines on a simulated device with a " +
			"virtual clock.\n\n" +
			"With --cluster, it shows how many streams, servers, workers and GPUs a load needs at peak, and which figure decides each number. It computes them from " +
			"measured and assumed figures, which it lists: see docs/capacity.md.",
		Example: "  worker plan --batches 4\n  worker plan --model chunks --chunks 8\n" +
			"  worker plan --cluster --records 1e6 --record-bytes 2048",
		Args: flagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(cmd.Flags().Changed); err != nil {
				return usageError{fmt.Errorf("plan: %w: see worker plan -h", err)}
			}
			return runPlan(cmd.Context(), p)
		},
	}
	f := c.Flags()
	f.StringVar(&p.model, "model", "batches", "what overlaps: batches, or the chunks of one payload")
	f.IntVar(&p.batches, "batches", 4, fmt.Sprintf("the number of batches, 1 to %d", plan.MaxBatches))
	f.IntVar(&p.chunks, "chunks", 4, fmt.Sprintf("the number of chunks of the payload, 1 to %d; with --model chunks", plan.MaxBatches))
	f.StringVar(&p.stages, "stages", "1,1,1", "how many `units` of time copy in, compute and copy out take")
	f.IntVar(&p.lanes, "lanes", 0, "the number of lanes of the pipelined schedule; 0: one per batch")
	f.BoolVar(&p.json, "json", false, "print JSON, for programs")
	p.addCluster(f)
	complete(c, "model", "batches", "chunks")
	complete(c, "operator", plan.Operators()...)
	return c
}

// addCluster adds --cluster and clusterFlags.
func (p *planFlags) addCluster(f *pflag.FlagSet) {
	l := &p.load
	f.BoolVar(&p.cluster, "cluster", false, "show what a load needs, not a schedule")
	f.Float64Var(&l.Records, "records", 0, "the records per second, on average; required")
	f.Float64Var(&l.RecordBytes, "record-bytes", 0, "the average bytes of a record, before compression; required")
	f.Float64Var(&l.MessageBytes, "message-bytes", 512<<10, "the bytes of records in a message, before compression; 1: one record per message")
	f.Float64Var(&l.Compression, "compression", 1, "the bytes of records divided by the bytes of their messages")
	f.Float64Var(&l.ResultBytes, "result-bytes", -1, "the bytes that the server stores for a record's result; -1: those of the operator in binary")
	f.IntVar(&l.Replicas, "replicas", 3, "the replicas of each stream")
	f.Float64Var(&l.Peak, "peak", 3, "the load at peak divided by the average load")
	f.DurationVar(&l.Retention, "retention", 24*time.Hour, "how long the servers keep inputs and results")
	f.StringVar(&l.Operator, "operator", "minhash", "the operator: "+strings.Join(plan.Operators(), ", "))
	f.StringToStringVar(&p.figures, "figure", nil, "replace a figure of the output: `name=value`; may be repeated")
	f.Lookup("figure").DefValue = "" // the help would show []
	for _, name := range clusterFlags {
		f.Lookup(name).Usage += "; with --cluster"
	}
}

func runPlan(ctx context.Context, p *planFlags) error {
	if p.cluster {
		return p.runCluster()
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

// check returns an error if the flags conflict. changed reports whether a flag is set.
func (p *planFlags) check(changed func(flag string) bool) error {
	others := clusterFlags
	if p.cluster {
		others = scheduleFlags
	}
	for _, flag := range others {
		if changed(flag) && p.cluster {
			return fmt.Errorf("--%s is not for --cluster", flag)
		} else if changed(flag) {
			return fmt.Errorf("--%s is only for --cluster", flag)
		}
	}
	switch chunked := p.model == "chunks"; {
	case p.cluster && !(changed("records") && changed("record-bytes")):
		return errors.New("--cluster needs --records and --record-bytes")
	case !chunked && p.model != "batches":
		return fmt.Errorf("--model is %q: use batches or chunks", p.model)
	case !chunked && changed("chunks"):
		return errors.New("--chunks is only for --model chunks")
	case chunked && changed("batches"):
		return errors.New("--batches is not for --model chunks: use --chunks")
	}
	return nil
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

// runCluster prints what a load needs.
func (p *planFlags) runCluster() error {
	p.load.Figures = map[string]float64{}
	for name, text := range p.figures {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return usageError{fmt.Errorf("plan: --figure has %s=%q: give a number", name, text)}
		}
		p.load.Figures[name] = v
	}
	n, err := p.load.Needs()
	if err != nil {
		return usageError{fmt.Errorf("plan: %w", err)}
	}
	if p.json {
		return writeJSON(os.Stdout, n)
	}
	return writeNeeds(os.Stdout, n)
}

// writeNeeds prints the load at peak, a table of the needs, and the figures.
func writeNeeds(w io.Writer, n plan.Needs) error {
	whole := func(v float64) string { return console.Count(int64(math.Round(v))) }
	_, err := fmt.Fprintf(w, "At peak: %s records/s (%.3g GB/s) in %s messages/s.\nInputs %.3g GB/s and results %.3g GB/s, %d replicas: the servers store %.3g GB/s.\n\n",
		whole(n.Records), n.Bytes, whole(n.Messages), n.Inputs, n.Results, n.Replicas, n.Stored)
	rows := [][]string{{"need", "number", "decided by"}}
	for _, need := range n.Needs {
		rows = append(rows, []string{need.Name, console.Count(need.Number), need.Bound})
	}
	if err := errors.Join(err, console.Table(w, rows)); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("\nFigures of an H100 80GB HBM3 with driver 580.159.04. Worker and server shared 16 cores (docs/benchmarks.md):\n")
	for _, f := range n.Figures {
		value := fmt.Sprintf("%.3g", f.Value)
		if f.Value >= 1000 {
			value = whole(f.Value)
		}
		fmt.Fprintf(&b, "  %-15s  %7s %-10s  %s\n", f.Name, value, f.Unit, f.Source)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// parseStages parses three durations, such as "2,3,1".
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

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
