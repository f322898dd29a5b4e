package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/cliclient/resend"
	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/ingest/results"
)

type retryFlags struct {
	stream             streamFlag
	reasons, sequences []string
	subject            string
	rate               float64
	dryRun             bool
}

func retryCommand() *cobra.Command {
	f := &retryFlags{}
	c := &cobra.Command{
		Use: "retry", Short: "publish dead letters again as inputs",
		Long: "Publishes the dead letters that the flags select again as inputs, with the headers that the inputs had. A record of a frame is sent as a separate " +
			"frame. Remove the cause first, otherwise they become dead letters again. Try --dry-run first: it counts the dead letters that would be sent, and sends nothing. " +
			"Exit status 1 if a selected dead letter was not sent.\n\n" +
			"Each dead letter is sent once, by the first run that selects it. The consumer MILLRACE_CONSUMER-retry of the stream of dead letters tracks the dead letters that were sent. " +
			"No dead letter is deleted. The next run sends dead letters that are stored after the command begins.\n\n" +
			"It reads the same MILLRACE_ variables as the worker. Without MILLRACE_NATS_URL it uses the server of a worker that runs on this machine.",
		Example: "  worker retry --dry-run\n  worker retry --reason too_large\n  worker retry --subject 'ingest.web.>' --rate 100\n  worker retry --sequence 4711,5000-5999",
		Args:    flagsOnly,
		PreRunE: noEmptyFlags,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runRetry(cmd.Context(), f) },
	}
	f.stream.add(c)
	c.Flags().StringSliceVar(&f.reasons, "reason", nil, "only dead letters with this `reason`; several with commas: "+strings.Join(reasonNames(), ", "))
	c.Flags().StringVar(&f.subject, "subject", "", "only dead letters of inputs with this `subject`, which may have wildcards")
	c.Flags().StringSliceVar(&f.sequences, "sequence", nil, "only dead letters of inputs with this `sequence`, or a range such as 5000-5999; several with commas")
	c.Flags().Float64Var(&f.rate, "rate", 0, "the most `messages` a second; 0: as fast as the server stores them")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would be sent, and send nothing")
	complete(c, "reason", reasonNames()...)
	return c
}

func reasonNames() (names []string) {
	for _, reason := range results.Reasons {
		names = append(names, string(reason))
	}
	return names
}

func runRetry(ctx context.Context, f *retryFlags) error {
	cfg, err := f.stream.config(ctx, "retry")
	if err != nil {
		return err
	}
	selected, err := f.selection(cfg)
	if err == nil && f.rate != 0 && f.rate < resend.MinRate {
		err = fmt.Errorf("--rate is %v: give at least %v messages a second, or 0 for no limit", f.rate, resend.MinRate)
	}
	if err != nil {
		return usageError{fmt.Errorf("retry: %w", err)}
	}
	nc, err := dialWorker(cfg, "millrace-retry")
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	defer nc.Close()
	r := &resend.Resender{
		Conn: nc, Topology: deployment(cfg), Name: cfg.Consumer + "-retry", Select: selected, Rate: f.rate, DryRun: f.dryRun,
		Reading: resend.Reading{Framing: cfg.Framing, Column: cfg.Field, Decompress: cfg.Decompress},
		Each: func(e resend.Entry) {
			if e.Err != nil {
				fmt.Fprintf(os.Stderr, "worker: retry: not sent: %v: %v\n", e, e.Err)
			} else if f.dryRun {
				fmt.Printf("would send %v, %s\n", e, console.Bytes(float64(e.Bytes)))
			}
		},
		Note: func(text string) { fmt.Fprintln(os.Stderr, "note:", text) },
	}
	report, err := r.Run(ctx)
	printRetried(report, cfg, f.dryRun)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("retry: interrupted: run it again for the rest")
	case err != nil:
		return fmt.Errorf("retry: %w", err)
	case report.Others > 0:
		return fmt.Errorf("retry: another run is sending %d dead letters: run this command again when it has ended", report.Others)
	case report.Refused+report.Failed > 0:
		return errReported
	}
	return nil
}

// printRetried prints the numbers of dead letters that were sent and not sent.
func printRetried(r *resend.Report, cfg *config.Config, dry bool) {
	sent, total := reasonCounts(r.Sent)
	verb := "sent"
	if dry {
		verb = "would send"
	}
	fmt.Printf("%s %s again to stream %s, %s%s, in %s\n", verb, counted(total, "dead letter"), cfg.Stream, console.Bytes(float64(r.Bytes)), sent, console.Time(r.Took))
	if r.Before > 0 {
		fmt.Printf("%s had been sent by a run that was killed\n", counted(r.Before, "dead letter"))
	}
	if left, n := reasonCounts(r.Left); n > 0 {
		fmt.Printf("left %s that the flags don't select%s\n", counted(n, "dead letter"), left)
	}
	if r.Refused+r.Failed > 0 {
		fmt.Printf("left %s that can't be sent, see above\n", counted(r.Refused+r.Failed, "dead letter"))
	}
}

// reasonCounts returns a text with the counts by reason, for the end of a sentence, and the sum of the counts.
func reasonCounts(counts map[string]int) (text string, total int) {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", reason, counts[reason]))
		total += counts[reason]
	}
	if total == 0 {
		return "", 0
	}
	return " (" + strings.Join(parts, ", ") + ")", total
}

func (r *retryFlags) selection(cfg *config.Config) (resend.Selection, error) {
	errs := []error{checkInputFilter(cfg, r.subject)}
	for _, reason := range r.reasons {
		if known := reasonNames(); !slices.Contains(known, reason) {
			errs = append(errs, fmt.Errorf("--reason is %q: give one of %s", reason, strings.Join(known, ", ")))
		}
	}
	s := resend.Selection{Reasons: r.reasons, Subject: r.subject}
	for _, text := range r.sequences {
		first, last, ranged := strings.Cut(text, "-")
		if !ranged {
			last = first
		}
		from, errFirst := strconv.ParseUint(first, 10, 64)
		to, errLast := strconv.ParseUint(last, 10, 64)
		if errFirst != nil || errLast != nil || from == 0 || from > to {
			errs = append(errs, fmt.Errorf("--sequence is %q: give the sequence of an input, such as 4711, or a range, such as 5000-5999", text))
		}
		s.Inputs = append(s.Inputs, resend.Range{First: from, Last: to})
	}
	return s, errors.Join(errs...)
}
