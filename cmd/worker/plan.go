package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/plan"
)

type planFlags struct {
	model  string
	stages string

	batches, chunks, lanes int
	json                   bool
}

func planCommand() *cobra.Command {
	p := &planFlags{}
	c := &cobra.Command{
		Use: "plan", Short: "show how long a schedule takes, slot by slot",
		Long: "Shows batches, or the chunks of one payload, slot by slot, without and with overlap. It runs the worker's pipelines on a simulated device with a " +
			"virtual clock.",
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
	complete(c, "model", "batches", "chunks")
	return c
}

func runPlan(ctx context.Context, p *planFlags) error {
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
	switch chunked := p.model == "chunks"; {
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
